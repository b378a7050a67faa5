//! Invalid tokens with one defect each, for every algorithm: all of them are rejected.

use std::collections::BTreeSet;

use super::*;

/// A token, and its defect.
type BadToken = (String, String);

/// Members of a correctly signed header, instead of `"alg":…,"kid":…` or in addition to them.
fn headers(algorithm: JwsAlgorithm, kid: &str) -> Vec<String> {
    let name = algorithm.name();
    let own = format!(r#""alg":"{name}","kid":"{kid}""#);
    let mut headers: Vec<String> = [
        r#""crit":["b64"],"b64":false"#,
        r#""crit":["exp"]"#,
        r#""crit":[]"#,
        r#""crit":null"#,
        r#""b64":false"#,
        r#""b64":true"#,
        r#""enc":"A256GCM""#,
        r#""enc":null"#,
        r#""zip":"DEF""#,
        r#""typ":"JOSE""#,
        r#""typ":"dpop+jwt""#,
        r#""typ":"logout+jwt""#,
        r#""typ":"secevent+jwt""#,
        r#""typ":7"#,
        r#""typ":null"#,
        r#""typ":["JWT"]"#,
        r#""typ":"JWT","typ":"JWT""#,
        r#""kid":"x""#,
        r#""\u006bid":"x""#,
        r#""alg":"none""#,
        r#""\u0061lg":"none""#,
        r#""x":{"y":1,"y":1}"#,
    ]
    .iter()
    .map(|more| format!("{{{own},{more}}}"))
    .collect();
    let kids = [
        r#""../../dev/null""#,
        r#""/etc/passwd""#,
        r#""keys/rsa""#,
        r#""..""#,
        r#""a..b""#,
        r#""C:\\keys\\rsa""#,
        r#""\\u002e\\u002e/rsa""#,
        r#""rsa\u0000""#,
        r#""\u0000""#,
        r#""rsa\u000a""#,
        r#""rsa\u007f""#,
        r#""""#,
        r#"" ""#,
        "null",
        "7",
        "true",
        r#"["rsa"]"#,
        r#"{"kid":"rsa"}"#,
        r#""unknown""#,
        r#""' OR 1=1 --""#,
        r#""http://evil/rsa""#,
    ];
    headers.extend(kids.map(|kid| format!(r#"{{"alg":"{name}","kid":{kid}}}"#)));
    let lower = name.to_ascii_lowercase();
    let algorithms = [
        "none",
        "None",
        "NONE",
        "nOnE",
        "none ",
        " none",
        "\\u006eone",
        "",
        "null",
        "NULL",
        "nil",
        "HS1",
        "RS1",
        "ES256K",
        "ES256 ",
        "RSA-OAEP",
        "dir",
        "A128KW",
        "SHA256",
        "Ed448",
        "*",
    ];
    let algorithms = algorithms.iter().copied().chain([lower.as_str()]);
    let kid = format!(r#""kid":"{kid}""#);
    headers.extend(algorithms.map(|other| format!(r#"{{"alg":"{other}",{kid}}}"#)));
    for other in ["null", "7", "true", "[]", "{}"] {
        headers.push(format!(r#"{{"alg":{other},{kid}}}"#));
    }
    headers.push(format!(r#"{{"alg":["{name}"],{kid}}}"#));
    headers.push(format!("{{{kid}}}"));
    headers.push(format!(r#"{{"ALG":"{name}",{kid}}}"#));
    for broken in ["", "null", "[]", "7", "\"x\"", "{", "{}", "{}{}", "\u{feff}{}"] {
        headers.push(broken.to_owned());
    }
    headers.push(format!("{{{own}}} x"));
    headers.push(format!("[{{{own}}}]"));
    headers.push(format!("{{{own},}}"));
    headers.push(format!("{{{}{own}}}", r#""x":"#.to_owned() + &"[".repeat(200) + ","));
    headers
}

/// Invalid claims.
fn claims() -> Vec<String> {
    let mut all = Vec::new();
    // One claim is missing.
    for claim in ["iss", "aud", "exp", "sub"] {
        all.push(claims_with(&[(claim, None)]));
    }
    for (claim, values) in [
        (
            "iss",
            &[
                r#""https://other.example""#,
                r#""https://issuer.example/""#,
                r#""""#,
                r#""HTTPS://issuer.example""#,
                r#""https://issuer.example ""#,
                "null",
                "7",
                r#"["https://issuer.example"]"#,
                r#"{"iss":"https://issuer.example"}"#,
                r#""https://issuer.example\u0000""#,
            ][..],
        ),
        (
            "aud",
            &[
                r#""other""#,
                r#""""#,
                "[]",
                r#"["other"]"#,
                r#"["other","x"]"#,
                "null",
                "7",
                "{}",
                r#""PEREGRINE""#,
                r#""peregrine ""#,
                r#"["peregrine",7]"#,
                r#"[["peregrine"]]"#,
                r#"{"peregrine":1}"#,
                r#""other peregrine""#,
                r#""other,peregrine""#,
            ],
        ),
        (
            "exp",
            &[
                "0",
                "-1",
                "1699999940",
                "1699999940.0",
                r#""1700003600""#,
                "null",
                "true",
                "[]",
                "{}",
                "[1700003600]",
                "-1e300",
                "1e400",
                "NaN",
                "Infinity",
                "0x7fffffff",
                r#""never""#,
            ],
        ),
        ("nbf", &["1700000061", "1700003600", "1e300", r#""1700000000""#, "null", "true", "[]"]),
        ("iat", &["1700000061", "1700003600", "1e300", r#""1700000000""#, "null", "true", "{}"]),
        (
            "sub",
            &[
                r#""""#,
                "null",
                "7",
                "true",
                r#"["alice"]"#,
                r#"{"name":"alice"}"#,
                r#""al\u0000ice""#,
                r#""alice\n""#,
            ],
        ),
        ("scope", &["7", "null", "true", "{}", r#"["a2a:read",7]"#, r#"[["a2a:admin"]]"#]),
        ("scp", &["7", "null", "{}", "[null]"]),
        ("org", &["7", "null", "{}", "[7]", r#"["blue",null]"#, r#""""#, r#"["a\u0000"]"#]),
        ("plan", &["7", "null", r#"["gold"]"#, r#""""#]),
    ] {
        all.extend(values.iter().map(|value| claims_with(&[(claim, Some(value))])));
    }
    // Too long a name.
    all.push(claims_with(&[("sub", Some(&format!("\"{}\"", "a".repeat(257))))]));
    // A claim is repeated in different ways, the right one first or last.
    let good = claims_with(&[]);
    let body = good.trim_matches(['{', '}']);
    for (claim, value) in [
        ("iss", r#""https://issuer.example""#),
        ("iss", r#""https://other.example""#),
        ("aud", r#""peregrine""#),
        ("exp", "1700003600"),
        ("exp", "9999999999"),
        ("nbf", "0"),
        ("iat", "0"),
        ("sub", r#""alice""#),
        ("sub", r#""root""#),
        ("scope", r#""a2a:admin""#),
        (r"\u0073ub", r#""root""#),
        (r"\u0065\u0078\u0070", "9999999999"),
        ("other", r#"{"a":1,"a":1}"#),
    ] {
        all.push(format!(r#"{{"{claim}":{value},{body}}}"#));
        all.push(format!(r#"{{{body},"{claim}":{value}}}"#));
    }
    all.retain(|claims| *claims != format!(r#"{{"other":1,{body}}}"#));
    for broken in ["", "null", "[]", "7", "\"x\"", "{", "{}", "{}{}", "\u{feff}{}", "alice"] {
        all.push(broken.to_owned());
    }
    all.push(format!("{good} x"));
    all.push(format!("[{good}]"));
    all
}

/// Non-canonical forms of a valid token.
fn spellings(token: &str) -> Vec<String> {
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, signature] = parts[..] else { panic!("three parts") };
    let mut all = vec![
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        "...".to_owned(),
        header.to_owned(),
        format!("{header}.{claims}"),
        format!("{header}.{claims}."),
        format!("{header}..{signature}"),
        format!(".{claims}.{signature}"),
        format!("{header}.{signature}.{claims}"),
        format!("{claims}.{header}.{signature}"),
        format!("{token}."),
        format!(".{token}"),
        format!("{token}.{signature}"),
        // RFC 7516 §7.1.
        format!("{header}.{claims}.{signature}.{claims}.{signature}"),
        format!("{header}....{signature}"),
        format!("{token}="),
        format!("{token}=="),
        format!("{header}=.{claims}.{signature}"),
        format!("{header}.{claims}=.{signature}"),
        format!(" {token}"),
        format!("{token} "),
        format!("{token}\n"),
        format!("{token}\0"),
        format!("{token}\u{e9}"),
        format!("\u{feff}{token}"),
        token.replace('.', ".."),
        token.replace('.', " . "),
        token.replacen('.', ",", 1),
        format!("{token}A"),
        format!("{token}AA"),
        format!("{token}AAAA"),
        token[..token.len() - 1].to_owned(),
        token[..token.len() - 4].to_owned(),
        format!("{header}.{claims}.{signature}{signature}"),
        format!("{header}.{claims}.{}", "A".repeat(signature.len())),
        format!("{header}.{claims}.AA"),
        format!("{header}.{claims}.{}", "_".repeat(signature.len() / 4 * 4)),
        format!("{header}.{claims}.{signature}{}", "A".repeat(8 * 1024)),
        token.to_ascii_uppercase(),
        token.to_ascii_lowercase(),
    ];
    for (at, _) in token.match_indices('.') {
        let mut cut = token.to_owned();
        cut.insert(at, '\n');
        all.push(cut);
    }
    // The same bytes with set bits after the last byte.
    for part in [0, 1, 2] {
        let mut changed = parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
        if changed[part].len() % 4 != 0 {
            let last = changed[part].pop().unwrap();
            changed[part].push(char::from(last as u8 + 1));
            all.push(changed.join("."));
        }
    }
    // The standard alphabet of base64.
    if token.contains(['-', '_']) {
        all.push(token.replace('-', "+").replace('_', "/"));
    }
    all
}

fn bad_tokens(issuer: &Issuer) -> Vec<BadToken> {
    let mut all = Vec::new();
    let good = claims_with(&[]);
    for (algorithm, kid) in ALGORITHMS {
        let name = algorithm.name();
        let header = header_of(algorithm, kid);
        for bad in headers(algorithm, kid) {
            // A secret has no name, so any `kid` is accepted.
            let is_any = algorithm.is_symmetric()
                && [r#""unknown""#, r#"" ""#, r#""' OR 1=1 --""#]
                    .iter()
                    .any(|any| bad == format!(r#"{{"alg":"{name}","kid":{any}}}"#));
            if !is_any {
                all.push((issuer.token(algorithm, &bad, &good), format!("{name} {bad}")));
            }
        }
        for bad in claims() {
            all.push((issuer.token(algorithm, &header, &bad), format!("{name} {bad}")));
        }
        let token = issuer.token(algorithm, &header, &good);
        for bad in spellings(&token) {
            all.push((bad.clone(), format!("{name} spelled {bad}")));
        }
        // Signed with one algorithm, and declared as another, with each key.
        for (other, other_kid) in ALGORITHMS {
            for kid in [kid, other_kid] {
                if other != algorithm {
                    let header = header_of(other, kid);
                    let token = issuer.token(algorithm, &header, &good);
                    all.push((token, format!("{name} said to be {}", other.name())));
                }
            }
        }
        // RFC 8725 §2.1: a public key used as the secret of an HMAC.
        for secret in issuer.public_bytes() {
            for (hash, hs) in [
                (ring::hmac::HMAC_SHA256, "HS256"),
                (ring::hmac::HMAC_SHA384, "HS384"),
                (ring::hmac::HMAC_SHA512, "HS512"),
            ] {
                let header = encode_url(format!(r#"{{"alg":"{hs}","kid":"{kid}"}}"#).as_bytes());
                let signed = format!("{header}.{}", encode_url(good.as_bytes()));
                let signature = encode_url(&hmac(hash, &secret, signed.as_bytes()));
                all.push((format!("{signed}.{signature}"), format!("{hs} by a public key")));
            }
        }
        // RFC 8725 §2.1: not signed at all, in any notation.
        for none in ["none", "None", "NONE", "nonE", name] {
            let header = encode_url(format!(r#"{{"alg":"{none}","kid":"{kid}"}}"#).as_bytes());
            let signed = format!("{header}.{}", encode_url(good.as_bytes()));
            all.push((format!("{signed}."), format!("{none} without a signature")));
            all.push((signed, format!("{none} without a third part")));
        }
    }
    all
}

#[test]
fn every_bad_token_is_refused_and_every_good_one_is_accepted() {
    let (issuer, rules) = (Issuer::new(), rules());
    let keys = issuer.keys();
    for (algorithm, kid) in ALGORITHMS {
        let token = issuer.token(algorithm, &header_of(algorithm, kid), &claims_with(&[]));
        let verified = verify(&rules, &keys, token.as_bytes(), NOW_MS);
        assert_eq!(verified.unwrap().principal.name, "alice", "{algorithm:?}");
    }
    let bad = bad_tokens(&issuer);
    let different: BTreeSet<&String> = bad.iter().map(|(token, _)| token).collect();
    assert!(different.len() > 2_000, "{}", different.len());
    let mut reasons = BTreeSet::new();
    for (token, what) in &bad {
        match verify(&rules, &keys, token.as_bytes(), NOW_MS) {
            Ok(verified) => panic!("accepted: {what}: {:?}", verified.principal),
            Err(TokenRefusal::UnknownKey) => _ = reasons.insert("unknown key"),
            Err(TokenRefusal::Wrong(reason) | TokenRefusal::Expired(reason)) => {
                // RFC 6750 §3: the characters allowed in a challenge.
                let fits = |b: u8| matches!(b, 0x20..=0x21 | 0x23..=0x5b | 0x5d..=0x7e);
                assert!(reason.bytes().all(fits), "{reason}");
                reasons.insert(reason);
            }
        }
    }
    // Each defect is reported as itself.
    assert!(reasons.len() >= 25, "{reasons:#?}");
}

/// A key in a header, or at a URL that a header names, is not trusted.
#[test]
fn keys_in_token_headers_are_ignored() {
    let (issuer, stranger, rules) = (Issuer::new(), Issuer::new(), rules());
    let keys = issuer.keys();
    for (algorithm, kid) in [(JwsAlgorithm::Es256, "p256"), (JwsAlgorithm::EdDsa, "ed")] {
        for more in [
            format!(r#""jwk":{}"#, stranger.jwk(kid, "")),
            r#""jku":"https://evil.example/keys""#.to_owned(),
            r#""x5u":"https://evil.example/chain""#.to_owned(),
            r#""x5c":["AAAA"]"#.to_owned(),
            r#""x5t":"AAAA""#.to_owned(),
        ] {
            let header = format!(r#"{{"alg":"{}","kid":"{kid}",{more}}}"#, algorithm.name());
            let token = stranger.token(algorithm, &header, &claims_with(&[]));
            let refused = verify(&rules, &keys, token.as_bytes(), NOW_MS).unwrap_err();
            assert_eq!(refused, TokenRefusal::Wrong("the token's signature is invalid"));
            let token = issuer.token(algorithm, &header, &claims_with(&[]));
            assert!(verify(&rules, &keys, token.as_bytes(), NOW_MS).is_ok(), "{more}");
        }
    }
}

/// Keys under which a valid token is rejected.
#[test]
fn key_for_other_use_or_algorithm_verifies_no_token() {
    let (issuer, rules) = (Issuer::new(), rules());
    let token = |kid: &str| {
        let (algorithm, _) = ALGORITHMS.into_iter().find(|(_, own)| *own == kid).unwrap();
        issuer.token(algorithm, &header_of(algorithm, kid), &claims_with(&[]))
    };
    for kid in ["rsa", "p256", "p384", "p521", "ed"] {
        let is_ok = |more: &str| {
            let jwk = issuer.jwk(kid, &format!(r#","kid":"{kid}"{more}"#));
            let keys = TokenKeys::read_set(format!(r#"{{"keys":[{jwk}]}}"#).as_bytes()).unwrap();
            verify(&rules, &keys, token(kid).as_bytes(), NOW_MS).is_ok()
        };
        assert!(is_ok(""));
        assert!(is_ok(r#","use":"sig","key_ops":["verify"]"#));
        for more in [
            r#","use":"enc""#,
            r#","use":null"#,
            r#","use":7"#,
            r#","key_ops":["sign"]"#,
            r#","key_ops":["encrypt"]"#,
            r#","key_ops":[]"#,
            r#","key_ops":"verify""#,
            r#","alg":"none""#,
            r#","alg":"HS256""#,
            r#","alg":"RS512""#,
            r#","alg":"ES256K""#,
            r#","alg":7"#,
            r#","alg":null"#,
        ] {
            assert!(!is_ok(more), "{kid} {more}");
        }
    }
    // PS256 and RS256 share keys, but this key is for one of them.
    let only = issuer.jwk("rsa", r#","kid":"rsa","alg":"PS256""#);
    let keys = TokenKeys::read_set(format!(r#"{{"keys":[{only}]}}"#).as_bytes()).unwrap();
    for (algorithm, is_listed) in [(JwsAlgorithm::Ps256, true), (JwsAlgorithm::Rs256, false)] {
        let token = issuer.token(algorithm, &header_of(algorithm, "rsa"), &claims_with(&[]));
        assert_eq!(verify(&rules, &keys, token.as_bytes(), NOW_MS).is_ok(), is_listed);
    }
    // The rules list the accepted algorithms, even if a key supports others.
    let listed = TokenRules { algorithms: vec![JwsAlgorithm::Es256], ..rules.clone() };
    for (algorithm, kid) in ALGORITHMS {
        let token = issuer.token(algorithm, &header_of(algorithm, kid), &claims_with(&[]));
        let is_ok = verify(&listed, &issuer.keys(), token.as_bytes(), NOW_MS).is_ok();
        assert_eq!(is_ok, algorithm == JwsAlgorithm::Es256, "{algorithm:?}");
    }
}
