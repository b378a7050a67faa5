//! A webhook reaches only public targets: hundreds of forms of other targets are refused at
//! configuration, and names that only a resolver can judge, at connection time.

use std::{
    fmt::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    process::Command,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    cannot_run,
    receiver::{Receiver, patiently, responds},
};
use crate::support::{
    ask::{OutgoingMessage, V1, post, rpc, say},
    binary::{Binary, PATH, Tcp},
};

/// An address of each special-purpose network of IPv4 and of multicast, and the metadata addresses
/// of clouds.
const V4: &[[u8; 4]] = &[
    [0, 0, 0, 0],
    [0, 1, 2, 3],
    [10, 0, 0, 1],
    [10, 255, 255, 254],
    [100, 64, 0, 1],
    [100, 127, 255, 254],
    [127, 0, 0, 1],
    [127, 0, 0, 53],
    [127, 255, 255, 254],
    [169, 254, 0, 1],
    [172, 16, 0, 1],
    [172, 31, 255, 254],
    [192, 0, 0, 1],
    [192, 0, 0, 8],
    [192, 0, 0, 170],
    [192, 0, 2, 1],
    [192, 88, 99, 1],
    [192, 168, 0, 1],
    [192, 168, 255, 254],
    [198, 18, 0, 1],
    [198, 19, 255, 254],
    [198, 51, 100, 1],
    [203, 0, 113, 1],
    [224, 0, 0, 1],
    [239, 255, 255, 250],
    [240, 0, 0, 1],
    [255, 255, 255, 255],
    // Of clouds: AWS, Azure, Alibaba, Oracle, and of containers at AWS.
    [169, 254, 169, 254],
    [168, 63, 129, 16],
    [100, 100, 100, 200],
    [192, 0, 0, 192],
    [169, 254, 170, 2],
];

/// The same of IPv6.
const V6: &[&str] = &[
    "::",
    "::1",
    "::2",
    "::ffff:0:0",
    "64:ff9b:1::1",
    "100::1",
    "100:0:0:1::1",
    "2001::1",
    "2001:2::1",
    "2001:10::1",
    "2001:1ff::1",
    "2001:db8::1",
    "2002::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "fe80::a9fe:a9fe",
    "febf::1",
    "fec0::1",
    "ff01::1",
    "ff02::1",
    "ff0e::1",
];

/// URLs that are invalid with any host, or because of the parts around it.
const OTHERS: &[&str] = &[
    "file:///etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "gopher://127.0.0.1:PORT/_",
    "dict://127.0.0.1:PORT/",
    "ftp://127.0.0.1:PORT/",
    "ldap://127.0.0.1:PORT/",
    "ws://127.0.0.1:PORT/",
    "data:text/plain,a",
    "javascript:alert(1)",
    "//127.0.0.1:PORT/",
    "/path",
    "http:127.0.0.1:PORT/",
    "http:/127.0.0.1:PORT/",
    "http:///127.0.0.1:PORT/",
    "http:\\\\127.0.0.1:PORT\\",
    "http://u@8.8.8.8:PORT/",
    "http://u:p@8.8.8.8:PORT/",
    "http://@8.8.8.8:PORT/",
    "http://8.8.8.8@127.0.0.1:PORT/",
    "http://8.8.8.8:80@127.0.0.1:PORT/",
    "http://8.8.8.8%40127.0.0.1:PORT/",
    "http://8.8.8.8\\@127.0.0.1:PORT/",
    "http://127.0.0.1:PORT\\@8.8.8.8/",
    "http://127.0.0.1:PORT#@8.8.8.8/",
    "http://127.0.0.1:PORT?@8.8.8.8/",
    "http://127.0.0.1:PORT/@8.8.8.8/",
    "http://8.8.8.8 @127.0.0.1:PORT/",
    "http://8.8.8.8\t@127.0.0.1:PORT/",
    "http://127.0.0.1\r\n:PORT/",
    "http://127.0.\t0.1:PORT/",
    " http://127.0.0.1:PORT/",
    "http://[::1%25lo]:PORT/",
    "http://[::1%lo]:PORT/",
    "http://[fe80::1%25eth0]:PORT/",
    "http://[127.0.0.1]:PORT/",
    "http://[v1.::1]:PORT/",
    "http://::1:PORT/",
    "http://127.0.0.1.1:PORT/",
    "http://127.0.0.256:PORT/",
    "http://0x100000000:PORT/",
    "http://0x7f.1.:PORT/",
    "http://127.1:PORT/",
    "http://127.0.1:PORT/",
    "http://0:PORT/",
    "http://0.:PORT/",
    "http://0x:PORT/",
    "http://00:PORT/",
    "http://017700000001:PORT/",
    "http://127。0。0。1:PORT/",
    "http://127｡0｡0｡1:PORT/",
    "http://①②⑦.⓪.⓪.①:PORT/",
    "http://𝟏𝟐𝟕.𝟎.𝟎.𝟏:PORT/",
    "http://127.0.0.1%00.example:PORT/",
    "http://%00127.0.0.1:PORT/",
    "http://127.0.0.1%2f.example:PORT/",
    "http://127.0.0.1%23.example:PORT/",
    "http://localhost:PORT/",
    "http://LOCALHOST:PORT/",
    "http://localhost.:PORT/",
    "http://a.localhost:PORT/",
    "http://a.localhost.:PORT/",
    "http://loc%61lhost:PORT/",
    "http://ｌｏｃａｌｈｏｓｔ:PORT/",
    "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:PORT/",
    "http://local\u{ad}host:PORT/",
    "http://8.8.8.8:22/",
    "http://8.8.8.8:25/",
    "http://8.8.8.8:445/",
    "http://8.8.8.8:0/",
    "http://8.8.8.8:65536/",
    "http://8.8.8.8:-1/",
];

/// Names that may be configured, and resolve to forbidden addresses, if to any.
const NAMES: &[&str] = &[
    "localhost.localdomain",
    "ip6-localhost",
    "ip6-loopback",
    "metadata.google.internal",
    "metadata",
    "instance-data",
    "kubernetes.default.svc",
    "host.docker.internal",
    "localtest.me",
    "127.0.0.1.nip.io",
    "0x7f000001.nip.io",
    "127.0.0.1.example",
    "1.0.0.127.in-addr.arpa",
];

/// Every notation of an IPv4 address.
fn spellings(octets: [u8; 4]) -> Vec<String> {
    let [a, b, c, d] = octets;
    let v4 = Ipv4Addr::from(octets);
    let (number, dotted) = (v4.to_bits(), v4.to_string());
    let [high, low] = [(number >> 16) as u16, number as u16];
    let wide = |text: &str| -> String {
        let wide = |c: char| char::from_u32(c as u32 - 0x21 + 0xff01).unwrap();
        text.chars().map(wide).collect()
    };
    let encoded = dotted.bytes().fold(String::new(), |mut text, byte| {
        write!(text, "%{byte:02x}").unwrap();
        text
    });
    let flipped = !number;
    let mut all = vec![
        dotted.clone(),
        format!("{dotted}."),
        format!("{number}"),
        format!("{number}."),
        format!("{number:#x}"),
        format!("0X{number:X}"),
        format!("0x00000000{number:x}"),
        format!("0{number:o}"),
        format!("0000{number:o}"),
        format!("{a}.{b}.{low}"),
        format!("{a}.{}", number & 0xff_ffff),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("000{a:o}.000{b:o}.000{c:o}.000{d:o}"),
        format!("{a}.0{b:o}.{c:#x}.{d}"),
        format!("{a:#x}.{b}.0{low:o}"),
        format!("0{a:o}.{:#x}", number & 0xff_ffff),
        wide(&dotted),
        wide(&number.to_string()),
        dotted.replace('.', "\u{3002}"),
        dotted.replace('.', "%2e"),
        encoded,
    ];
    all.extend([
        format!("[::ffff:{dotted}]"),
        format!("[::ffff:{high:x}:{low:x}]"),
        format!("[0000:0:0:0:0:FFFF:{high:04X}:{low:04X}]"),
        format!("[::{dotted}]"),
        format!("[::ffff:0:{dotted}]"),
        format!("[64:ff9b::{dotted}]"),
        format!("[64:ff9b::{high:x}:{low:x}]"),
        format!("[64:ff9b:1::{dotted}]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!("[2001:0:808:808:0:0:{:x}:{:x}]", (flipped >> 16) as u16, flipped as u16),
        format!("[2001:0:{high:x}:{low:x}::1]"),
        format!("[fe80::5efe:{dotted}]"),
    ]);
    all
}

fn v6_spellings(text: &str) -> Vec<String> {
    let address: Ipv6Addr = text.parse().unwrap();
    let whole = address.segments().map(|segment| format!("{segment:04x}")).join(":");
    vec![format!("[{text}]"), format!("[{whole}]"), format!("[{}]", whole.to_uppercase())]
}

/// The addresses by which this host reaches others, if any.
fn own_addresses() -> Vec<IpAddr> {
    [("0.0.0.0:0", "8.8.8.8:9"), ("[::]:0", "[2606:4700::1111]:9")]
        .into_iter()
        .filter_map(|(own, other)| {
            let socket = UdpSocket::bind(own).ok()?;
            socket.connect(other).ok()?;
            Some(socket.local_addr().ok()?.ip())
        })
        .collect()
}

fn urls(port: u16) -> Vec<String> {
    let mut hosts: Vec<String> = V4.iter().flat_map(|octets| spellings(*octets)).collect();
    hosts.extend(V6.iter().flat_map(|text| v6_spellings(text)));
    for own in own_addresses() {
        match own {
            IpAddr::V4(own) => hosts.extend(spellings(own.octets())),
            IpAddr::V6(own) => hosts.extend(v6_spellings(&own.to_string())),
        }
    }
    let mut urls: Vec<String> = hosts
        .iter()
        .flat_map(|host| [format!("http://{host}:{port}/hook"), format!("https://{host}/")])
        .collect();
    urls.extend(OTHERS.iter().map(|url| url.replace("PORT", &port.to_string())));
    urls
}

/// A server that posts to public hosts over plain http, so that no URL is refused for its scheme.
fn server() -> Binary {
    Binary::start_in(&["env", "PEREGRINE_PUSH_PLAIN_HTTP=true"], &[])
}

fn call(tcp: &mut Tcp, method: &str, params: &Value) -> Value {
    tcp.write(&post("/", &[("A2A-Version", "1.0")], &rpc(method, params)));
    tcp.reply().json()
}

fn configured(text: &str, url: &str) -> Value {
    let mut params = V1.params(say(text));
    params["configuration"]["taskPushNotificationConfig"] = json!({"url": url});
    params
}

#[test]
fn forbidden_webhook_urls_are_rejected_in_every_notation() {
    let server = server();
    // On every address of this host, of both families if it has both.
    let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let any = std::net::TcpListener::bind(v6).map_or((Ipv4Addr::UNSPECIFIED, 0).into(), |_| v6);
    let trap = Receiver::bound(any, |_, _| responds("200 OK"));
    let port = trap.addr.port();
    let mut tcp = server.connect();
    let params = V1.params(OutgoingMessage { at_once: true, ..say("hold:60000:3") });
    let held = call(&mut tcp, V1.send(), &params)["result"]["task"]["id"].clone();
    let urls = urls(port);
    assert!(urls.len() >= 2_000, "{}", urls.len());
    let mut accepted = Vec::new();
    for url in &urls {
        let create = json!({"taskId": held, "url": url});
        let create = call(&mut tcp, "CreateTaskPushNotificationConfig", &create);
        let inline = call(&mut tcp, V1.send(), &configured("stream:3", url));
        if [&create, &inline].iter().any(|answer| answer["error"]["code"] != -32602) {
            accepted.push((url, create, inline));
        }
    }
    assert!(accepted.is_empty(), "{} of {}: {accepted:#?}", accepted.len(), urls.len());
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let names = NAMES.iter().copied().chain([hostname.trim()]);
    for name in names.filter(|name| !name.is_empty()) {
        // The server refuses some, which is as good.
        call(&mut tcp, V1.send(), &configured("stream:3", &format!("http://{name}:{port}/")));
    }
    // Time for the first posts to them, and some retries.
    thread::sleep(Duration::from_secs(3));
    assert_eq!(trap.connections(), 0);
    // The trap is reachable if the operator allows it.
    let open = Binary::start(&["--push-allow", "localhost"]);
    let mut tcp = open.connect();
    for host in ["127.1", "localhost", "0x7f000001"] {
        let before = trap.count();
        let url = format!("http://{host}:{port}/");
        let sent = call(&mut tcp, V1.send(), &configured("stream:3", &url));
        assert!(sent["result"].is_object(), "{sent}");
        patiently("it is reached", || trap.count() > before);
    }
    server.assert_lives();
}

/// In its own namespaces: a resolver with changing answers, allowed receivers and forbidden ones.
/// `rebinding.py` has the assertions.
#[test]
fn dns_rebinding_reaches_no_forbidden_address() {
    let have = |args: &[&str]| {
        let output = Command::new(args[0]).args(&args[1..]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let veth = "unshare -rnm ip link add a0 type veth peer name b0".split(' ');
    if !have(&veth.collect::<Vec<_>>()) || !have(&["python3", "--version"]) {
        return cannot_run("this machine has no namespaces for us, or no ip or python3");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/webhooks/rebinding.py");
    let output = Command::new("unshare").args(["-rnm", "python3", script, PATH]).output().unwrap();
    let [stdout, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success() && stdout.contains("all held"), "{stdout}{errors}");
}
