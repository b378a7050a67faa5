//! The `A2A-Version` of a request: versions are compared only here.
//!
//! A2A 1.0 §3.6: `Major.Minor`; a patch number is ignored; absent or empty means 0.3. The method
//! name determines the generation; the version only decides whether the call is served.

use std::fmt;

use crate::{
    fault::{Fault, FaultKind},
    model::Generation,
};

use super::rest::HttpJson;

/// Newest minor version of 1.x that is served.
const V1_MINOR_MAX: u32 = 0;

/// Checks the requested version, from the header or else the query, for a method of `generation`.
///
/// `strict`: a method that only 1.0 has is rejected unless the request names 1.x; otherwise it is
/// served (wire Appendix B, step 3). A 0.x method is served with every supported version.
///
/// # Errors
/// `VersionNotSupported`.
pub fn check(requested: Option<&[u8]>, generation: Generation, strict: bool) -> Result<(), Fault> {
    let needs = if strict { generation } else { Generation::V03 };
    match (requested, needs) {
        (Some(b"1.0"), _) => Ok(()),
        (None | Some(b"" | b"0.3"), Generation::V01 | Generation::V03) => Ok(()),
        _ => compare(requested.unwrap_or_default(), needs),
    }
}

/// The binding for a request over HTTP+JSON and its answer: that of the requested version, if it is
/// among `forms`; without a version, that of the path.
///
/// A path is less specific than a method name: `/v1` may also be a tenant (wire §10, trap 37).
/// `strict`: the request must name 1.0.
///
/// # Errors
/// `VersionNotSupported`.
pub fn rest(
    requested: Option<&[u8]>,
    by_path: &'static HttpJson,
    forms: &[&'static HttpJson],
    strict: bool,
) -> Result<&'static HttpJson, Fault> {
    let requested = requested.unwrap_or_default();
    if requested == b"1.0" && by_path.generation == Generation::V1 {
        return Ok(by_path);
    }
    let requested = str::from_utf8(requested).unwrap_or("?").trim();
    if requested.is_empty() {
        if strict && by_path.generation == Generation::V1 {
            let detail = "this path needs the header A2A-Version: 1.0";
            return Err(Fault::because(FaultKind::VersionNotSupported, detail));
        }
        return Ok(by_path);
    }
    let wanted = generation(requested);
    if wanted == Some(by_path.generation) {
        return Ok(by_path);
    }
    let served = forms.iter().copied().find(|form| Some(form.generation) == wanted);
    let detail = "this version is not served over HTTP+JSON";
    served.ok_or_else(|| Fault::because(FaultKind::VersionNotSupported, detail))
}

#[cold]
fn compare(requested: &[u8], needs: Generation) -> Result<(), Fault> {
    let requested = str::from_utf8(requested).unwrap_or("?").trim();
    let generation =
        if requested.is_empty() { Some(Generation::V03) } else { generation(requested) };
    match (generation, needs) {
        (Some(Generation::V1), _) => Ok(()),
        (Some(_), Generation::V01 | Generation::V03) => Ok(()),
        (Some(Generation::V01 | Generation::V03), Generation::V1) => Err(Fault::because(
            FaultKind::VersionNotSupported,
            "this method needs the header A2A-Version: 1.0",
        )),
        (None, _) => Err(Fault::because(
            FaultKind::VersionNotSupported,
            "versions 0.1, 0.2, 0.3 and 1.0 are served",
        )),
    }
}

/// The wire family of a version text; `None`: the version is not supported (wire §1.8).
pub fn generation(version: &str) -> Option<Generation> {
    ProtocolVersion::parse(version)?.generation()
}

/// A protocol version as cards and callers name it (A2A 1.0 §3.6), without its patch number.
/// Versions are ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProtocolVersion {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

impl ProtocolVersion {
    /// Reads `Major.Minor`, with an optional patch number; each number has at most nine digits.
    pub fn parse(text: &str) -> Option<ProtocolVersion> {
        let mut numbers = text.split('.').map(number);
        let (major, minor) = (numbers.next()??, numbers.next()??);
        let patch_is_fine = numbers.next().is_none_or(|patch| patch.is_some());
        let is_version = patch_is_fine && numbers.next().is_none();
        is_version.then_some(ProtocolVersion { major, minor })
    }

    /// The wire family of the version; `None`: the version is not supported.
    pub fn generation(self) -> Option<Generation> {
        match (self.major, self.minor) {
            (0, 1) => Some(Generation::V01),
            (0, 2 | 3) => Some(Generation::V03),
            (1, 0..=V1_MINOR_MAX) => Some(Generation::V1),
            _ => None,
        }
    }
}

/// Only the client uses these items.
#[cfg(feature = "client")]
impl ProtocolVersion {
    /// 1.0
    pub const V1_0: ProtocolVersion = ProtocolVersion { major: 1, minor: V1_MINOR_MAX };
    /// 0.3
    pub const V0_3: ProtocolVersion = ProtocolVersion { major: 0, minor: 3 };
    /// 0.1
    pub const V0_1: ProtocolVersion = ProtocolVersion { major: 0, minor: 1 };

    /// The version to use with a server of this version: the version itself. A later minor version
    /// of 1.x only adds to earlier ones, so for it the newest known one is used.
    pub fn spoken(self) -> Option<ProtocolVersion> {
        let is_newer = self.major == 1 && self.minor > V1_MINOR_MAX;
        let version = if is_newer { ProtocolVersion::V1_0 } else { self };
        version.generation().map(|_| version)
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

fn number(digits: &str) -> Option<u32> {
    let plain = digits.len() <= 9 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::dialect::STANDARD;

    #[test]
    fn versions_are_parsed_as_major_minor() {
        for (text, expected) in [
            ("1.0", Some(Generation::V1)),
            ("1.0.1", Some(Generation::V1)),
            ("0.3", Some(Generation::V03)),
            ("0.3.0", Some(Generation::V03)),
            ("0.2.6", Some(Generation::V03)),
            ("0.1", Some(Generation::V01)),
        ] {
            assert_eq!(generation(text), expected, "{text}");
        }
        for text in ["", "1", "1.", ".0", "1.0.", "1.0.0.0", "1.1", "2.0", "99.0", "0.4", "v1.0"] {
            assert_eq!(generation(text), None, "{text}");
        }
        assert_eq!(generation("+1.0"), None);
        assert_eq!(generation("1.00000000000"), None);
    }

    #[test]
    fn newer_1_x_version_maps_to_newest_supported() {
        let version_to_use = |text: &str| ProtocolVersion::parse(text).unwrap().spoken();
        assert_eq!(version_to_use("1.0.1"), Some(ProtocolVersion::V1_0));
        assert_eq!(version_to_use("1.7"), Some(ProtocolVersion::V1_0));
        assert_eq!(version_to_use("0.2.5"), Some(ProtocolVersion { major: 0, minor: 2 }));
        assert_eq!((version_to_use("0.4"), version_to_use("2.0")), (None, None));
        assert!(ProtocolVersion::V0_3 < ProtocolVersion::V1_0);
        assert_eq!(ProtocolVersion::V0_3.to_string(), "0.3");
    }

    #[test]
    fn absent_version_is_0_3_and_strict_1_0_methods_reject_it() {
        let (new, old) = (STANDARD.method(b"GetTask"), STANDARD.method(b"message/send"));
        let (Some(new), Some(old)) = (new, old) else { panic!("both methods exist") };
        let (new, old) = (new.generation(), old.generation());
        for requested in [None, Some(&b""[..]), Some(b" "), Some(b"0.3"), Some(b"0.2.6")] {
            assert!(check(requested, new, false).is_ok() && check(requested, old, true).is_ok());
            let fault = check(requested, new, true).unwrap_err();
            assert_eq!(fault.kind, FaultKind::VersionNotSupported);
        }
        assert!(check(Some(b"1.0"), new, true).is_ok() && check(Some(b" 1.0 "), old, true).is_ok());
        for requested in [&b"99.0"[..], b"\xff", b"1.0\xff"] {
            for generation in [new, old] {
                let fault = check(Some(requested), generation, false).unwrap_err();
                assert_eq!(fault.kind.row().code, -32009);
            }
        }
    }
}
