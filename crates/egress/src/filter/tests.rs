//! The table of addresses (T54) and the meaning of each list.

use super::*;

fn policy(private: &[&str], http: &[&str], deny: &[&str]) -> Policy {
    let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect();
    Policy::new(&Rules {
        private: texts(private),
        http: texts(http),
        deny: texts(deny),
    })
    .unwrap()
}

fn verdict(policy: &Policy, url: &str) -> Result<(), &'static str> {
    match Url::parse(url) {
        Ok(url) => policy
            .check_url(&url)
            .map_err(|denied| denied.rule.as_str()),
        Err(_) => Err("unparsed"),
    }
}

/// A URL and the rule that refuses it, or `ok`.
const TABLE: &[(&str, &str)] = &[
    ("https://example.com/mcp", "ok"),
    ("https://example.com.:8443/", "ok"),
    ("https://8.8.8.8/", "ok"),
    ("https://[2606:4700::1111]/", "ok"),
    ("https://[64:ff9b::808:808]/", "ok"),
    ("https://1.1.1.1.example.com/", "ok"),
    ("https://172.15.255.255/", "ok"),
    ("https://172.32.0.1/", "ok"),
    ("https://100.63.255.255/", "ok"),
    ("https://100.128.0.1/", "ok"),
    ("https://11.0.0.1/", "ok"),
    ("https://223.255.255.255/", "ok"),
    ("http://example.com/", "http"),
    ("http://8.8.8.8/", "http"),
    ("http://169.254.169.254/latest/meta-data/", "http"),
    ("https://169.254.169.254/latest/meta-data/", "metadata"),
    ("https://2852039166/", "metadata"),
    ("https://0xa9fea9fe/", "metadata"),
    ("https://0251.0376.0251.0376/", "metadata"),
    ("https://169.254.170.2/v2/credentials", "metadata"),
    ("https://[fd00:ec2::254]/", "metadata"),
    ("https://[fd20:ce::254]/", "metadata"),
    ("https://100.100.100.200/", "metadata"),
    ("https://168.63.129.16/", "metadata"),
    ("https://192.0.0.192/", "metadata"),
    ("https://[::ffff:169.254.169.254]/", "metadata"),
    ("https://[64:ff9b::a9fe:a9fe]/", "metadata"),
    ("https://2130706433/", "loopback"),
    ("https://0x7f.1/", "loopback"),
    ("https://0x7f000001/", "loopback"),
    ("https://017700000001/", "loopback"),
    ("https://127.1/", "loopback"),
    ("https://127.0.0.1:22/", "loopback"),
    ("https://127.255.255.254/", "loopback"),
    ("https://127.0.0.1./", "loopback"),
    ("https://①②⑦.⓪.⓪.①/", "loopback"),
    ("https://%31%32%37.0.0.1/", "loopback"),
    ("https://[::1]/", "loopback"),
    ("https://[0:0:0:0:0:0:0:1]/", "loopback"),
    ("https://[::ffff:127.0.0.1]/", "loopback"),
    ("https://[::ffff:7f00:1]/", "loopback"),
    ("https://[64:ff9b::7f00:1]/", "loopback"),
    ("https://[::127.0.0.1]/", "loopback"),
    ("https://a@127.0.0.1/", "userinfo"),
    ("https://:secret@example.com/", "userinfo"),
    ("https://example.com@127.0.0.1/", "userinfo"),
    ("https://10.0.0.1/", "private"),
    ("https://10.255.255.255/", "private"),
    ("https://012.0.0.1/", "private"),
    ("https://167772161/", "private"),
    ("https://172.16.0.1/", "private"),
    ("https://172.31.255.255/", "private"),
    ("https://192.168.1.1/", "private"),
    ("https://192.168.257/", "private"),
    ("https://100.64.0.1/", "private"),
    ("https://100.127.255.255/", "private"),
    ("https://[fc00::1]/", "private"),
    ("https://[fd12:3456::1]/", "private"),
    ("https://[::ffff:10.0.0.1]/", "private"),
    ("https://[::ffff:c0a8:101]/", "private"),
    ("https://[64:ff9b::a00:1]/", "private"),
    ("https://[::10.0.0.1]/", "private"),
    ("https://169.254.1.1/", "link_local"),
    ("https://[fe80::1]/", "link_local"),
    ("https://[febf::1]/", "link_local"),
    ("https://224.0.0.1/", "multicast"),
    ("https://239.255.255.250/", "multicast"),
    ("https://[ff02::1]/", "multicast"),
    ("https://0.0.0.0/", "reserved"),
    ("https://0/", "reserved"),
    ("https://0.1.2.3/", "reserved"),
    ("https://[::]/", "reserved"),
    ("https://[::2]/", "reserved"),
    ("https://192.0.2.1/", "reserved"),
    ("https://198.18.0.1/", "reserved"),
    ("https://198.51.100.7/", "reserved"),
    ("https://203.0.113.9/", "reserved"),
    ("https://192.88.99.1/", "reserved"),
    ("https://240.0.0.1/", "reserved"),
    ("https://255.255.255.255/", "reserved"),
    ("https://[2002:7f00:1::]/", "reserved"),
    ("https://[2001::7f00:1]/", "reserved"),
    ("https://[2001:db8::1]/", "reserved"),
    ("https://[3fff::1]/", "reserved"),
    ("https://[64:ff9b:1::7f00:1]/", "reserved"),
    ("https://[fec0::1]/", "reserved"),
    ("https://[100::1]/", "reserved"),
    ("https://[4000::1]/", "reserved"),
    ("unix:/var/run/docker.sock", "scheme"),
    ("gopher://example.com/", "scheme"),
    ("file:///etc/passwd", "scheme"),
    ("ftp://example.com/", "scheme"),
    ("ws://example.com/", "scheme"),
    ("data:text/plain,hi", "scheme"),
    ("https://256.256.256.256/", "unparsed"),
    ("https://1.2.3.4.5/", "unparsed"),
    ("https://[::1%25eth0]/", "unparsed"),
    ("https:///", "unparsed"),
];

/// T54: whatever way an address is written, it is judged as what it is.
#[test]
fn t54_urls_of_a_registration_without_any_opened_network() {
    assert!(TABLE.len() >= 80);
    let policy = Policy::default();
    for (url, expected) in TABLE {
        let found = verdict(&policy, url).map_or_else(|rule| rule, |()| "ok");
        assert_eq!(found, *expected, "{url}");
    }
}

/// T54: names pass the look at the URL; what they resolve to decides.
#[test]
fn t54_a_name_is_judged_by_the_address_it_resolves_to() {
    let policy = Policy::default();
    for (name, address, rule) in [
        ("localhost", "127.0.0.1", "loopback"),
        ("localhost.", "::1", "loopback"),
        ("foo.localhost", "::ffff:127.0.0.1", "loopback"),
        ("metadata.google.internal", "169.254.169.254", "metadata"),
        ("rebind.example", "10.1.2.3", "private"),
        ("2130706433", "127.0.0.1", "loopback"),
    ] {
        let denied = policy.check_address(name, address.parse().unwrap());
        assert_eq!(denied.unwrap_err().rule.as_str(), rule, "{name}");
    }
    assert!(
        policy
            .check_address("a.example", "93.184.216.34".parse().unwrap())
            .is_ok()
    );
}

#[test]
fn private_networks_open_by_network_or_by_name_with_a_private_address() {
    let policy = policy(&["10.20.0.0/16", "*.svc.cluster.local"], &[], &[]);
    let check = |name: &str, address: &str| {
        policy
            .check_address(name, address.parse().unwrap())
            .map_err(|denied| denied.rule)
    };
    assert_eq!(check("any.example", "10.20.3.4"), Ok(()));
    assert_eq!(check("any.example", "::ffff:10.20.3.4"), Ok(()));
    assert_eq!(check("any.example", "10.21.3.4"), Err(Rule::Private));
    assert_eq!(check("docs.svc.cluster.local", "192.168.7.7"), Ok(()));
    assert_eq!(check("DOCS.svc.cluster.local.", "fd00::7"), Ok(()));
    assert_eq!(
        check("docs.svc.cluster.local", "127.0.0.1"),
        Err(Rule::Loopback)
    );
    assert_eq!(
        check("docs.svc.cluster.local", "169.254.9.9"),
        Err(Rule::LinkLocal)
    );
    assert_eq!(
        check("docs.svc.cluster.local", "169.254.169.254"),
        Err(Rule::Metadata)
    );
}

#[test]
fn loopback_link_local_and_metadata_open_only_by_a_network_that_means_them() {
    let metadata: IpAddr = "169.254.169.254".parse().unwrap();
    let loopback: IpAddr = "127.0.0.1".parse().unwrap();
    let wide = policy(&["0.0.0.0/0", "::/0"], &[], &[]);
    assert_eq!(
        wide.check_address("", metadata).unwrap_err().rule,
        Rule::Metadata
    );
    assert_eq!(
        wide.check_address("", loopback).unwrap_err().rule,
        Rule::Loopback
    );
    assert!(wide.check_address("", "10.0.0.1".parse().unwrap()).is_ok());
    let link = policy(&["169.254.0.0/16"], &[], &[]);
    assert_eq!(
        link.check_address("", metadata).unwrap_err().rule,
        Rule::Metadata
    );
    assert!(
        link.check_address("", "169.254.3.3".parse().unwrap())
            .is_ok()
    );
    let explicit = policy(&["169.254.169.254/32", "127.0.0.0/8"], &[], &[]);
    assert!(explicit.check_address("", metadata).is_ok());
    assert!(explicit.check_address("", loopback).is_ok());
}

#[test]
fn http_is_open_to_listed_names_and_networks_only() {
    let policy = policy(&["10.0.0.0/8"], &["*.internal", "10.1.0.0/16"], &[]);
    assert_eq!(verdict(&policy, "http://docs.internal/sse"), Ok(()));
    assert_eq!(verdict(&policy, "http://DOCS.INTERNAL./sse"), Ok(()));
    assert_eq!(verdict(&policy, "http://internal/"), Err("http"));
    assert_eq!(verdict(&policy, "http://10.1.2.3/"), Ok(()));
    assert_eq!(verdict(&policy, "http://10.2.2.3/"), Err("http"));
}

#[test]
fn the_deny_list_wins_over_everything_that_is_opened() {
    let policy = policy(&["10.0.0.0/8"], &[], &["10.9.0.0/16", "bad.example"]);
    assert_eq!(verdict(&policy, "https://bad.example/"), Err("deny"));
    assert_eq!(verdict(&policy, "https://BAD.example./"), Err("deny"));
    assert_eq!(verdict(&policy, "https://10.9.1.1/"), Err("deny"));
    let mapped = "::ffff:10.9.1.1".parse().unwrap();
    assert_eq!(
        policy.check_address("x", mapped).unwrap_err().rule,
        Rule::Deny
    );
    assert_eq!(verdict(&policy, "https://10.8.1.1/"), Ok(()));
}

#[test]
fn a_tenants_list_narrows_and_opens_nothing() {
    let operator = policy(&["10.0.0.0/8"], &[], &[]);
    let allow = [
        "*.example".to_owned(),
        "10.1.0.0/16".to_owned(),
        "127.0.0.0/8".to_owned(),
    ];
    let tenant = operator.narrowed(&allow).unwrap();
    let check = |name: &str, address: &str| {
        tenant
            .check_address(name, address.parse().unwrap())
            .map_err(|denied| denied.rule)
    };
    assert_eq!(check("a.example", "8.8.8.8"), Ok(()));
    assert_eq!(check("a.other", "8.8.8.8"), Err(Rule::Allow));
    assert_eq!(check("a.other", "10.1.1.1"), Ok(()));
    assert_eq!(check("a.other", "10.2.1.1"), Err(Rule::Allow));
    assert_eq!(check("a.other", "127.0.0.1"), Err(Rule::Loopback));
}

#[test]
fn a_literal_loopback_upstream_of_the_operator_opens_that_port_alone() {
    let named = Url::parse("http://127.0.0.1:9001/mcp").unwrap();
    let target = Policy::literal_loopback(&named).unwrap();
    assert_eq!(target, "127.0.0.1:9001".parse().unwrap());
    let policy = Policy::default().allow_literal_loopback([target, "10.0.0.1:80".parse().unwrap()]);
    assert_eq!(verdict(&policy, "http://127.0.0.1:9001/mcp"), Ok(()));
    assert_eq!(verdict(&policy, "http://127.0.0.1:9002/mcp"), Err("http"));
    assert_eq!(
        verdict(&policy, "https://127.0.0.1:9002/mcp"),
        Err("loopback")
    );
    assert_eq!(verdict(&policy, "https://10.0.0.1:80/"), Err("private"));
    for other in ["http://localhost:9001/", "http://10.0.0.1/"] {
        assert_eq!(
            Policy::literal_loopback(&Url::parse(other).unwrap()),
            None,
            "{other}"
        );
    }
}
