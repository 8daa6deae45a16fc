//! The file that the consumer makes of our ConfigMap, read by the real keepalived.

use std::io::Write as _;
use std::process::Command;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn service(name: &str, ports: &Value) -> Service {
    serde_json::from_value(
        json!({ "metadata": { "namespace": "default", "name": name }, "spec": { "ports": ports } }),
    )
    .unwrap()
}

fn endpoints(name: &str, ips: &[&str], ports: &Value) -> Endpoints {
    let addresses: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
    serde_json::from_value(json!({
        "metadata": { "namespace": "default", "name": name },
        "subsets": [{ "addresses": addresses, "ports": ports }],
    }))
    .unwrap()
}

fn site() -> Site {
    Site {
        interface: "eth0".into(),
        own: "192.0.2.11".into(),
        nodes: vec!["192.0.2.10".into(), "192.0.2.11".into()],
        router_id: 50,
        unicast: false,
        plain: true,
    }
}

fn data(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// Runs `keepalived -t`: `Ok` when it has nothing to say, or what it says. `None` where it is not installed.
pub(in crate::keepalived) fn check(conf: &str) -> Option<Result<(), String>> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keepalived.conf");
    std::fs::File::create(&file)
        .unwrap()
        .write_all(conf.as_bytes())
        .unwrap();
    let log = directory.path().join("log");
    let Ok(output) = Command::new("keepalived")
        .arg(format!("--config-test={}", log.display()))
        .arg("-f")
        .arg(&file)
        .output()
    else {
        eprintln!("skipped: keepalived is not installed here");
        return None;
    };
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let is_clean = output.status.success() && said.is_empty() && file.exists();
    Some(if is_clean {
        Ok(())
    } else {
        Err(format!("{}: {said}\n{conf}", output.status))
    })
}

#[test]
fn keepalived_accepts_the_file() {
    let web = json!([{ "port": 80, "targetPort": 8080 }, { "port": 443, "targetPort": 8443 }]);
    let dns = json!([{ "port": 53, "protocol": "UDP", "targetPort": 53 }]);
    let services = [
        service("web", &web),
        service("dns", &dns),
        service("idle", &json!([{ "port": 80 }])),
    ];
    let endpoints = [
        endpoints(
            "web",
            &["10.1.0.2", "10.1.0.1"],
            &json!([{ "port": 8080 }, { "port": 8443 }]),
        ),
        endpoints("dns", &["10.1.0.3"], &json!([{ "port": 53, "protocol": "UDP" }])),
    ];
    let entries = data(&[
        ("10.0.0.1", "default/web"),
        ("10.0.0.2", "default/dns:DR"),
        ("10.0.0.3", ""),
        ("10.0.0.4", "default/idle"),
        ("10.0.0.5", "default/gone"),
        ("10.0.0.6", "default/web:VIP"),
    ]);
    let servers = virtual_servers(&entries, &services, &endpoints);
    assert_eq!(announced(&servers), ["10.0.0.3", "10.0.0.2", "10.0.0.1"]);
    let conf = keepalived_conf(&servers, &site());
    assert!(conf.contains("priority 101"));
    if let Some(verdict) = check(&conf) {
        verdict.unwrap();
    }
    let unicast = keepalived_conf(
        &servers,
        &Site {
            unicast: true,
            ..site()
        },
    );
    assert!(unicast.contains("unicast_src_ip 192.0.2.11\n  unicast_peer {\n    192.0.2.10\n  }"));
    if let Some(verdict) = check(&unicast) {
        verdict.unwrap();
    }
}

#[test]
fn keepalived_has_nothing_to_say_about_no_address_at_all() {
    if let Some(verdict) = check(&keepalived_conf(&[], &site())) {
        verdict.unwrap();
    }
}

#[rstest]
#[case::unparsable("foo", "NAT", 80, 80)]
#[case::leading_zero("10.0.0.005", "NAT", 80, 80)]
#[case::unknown_method("10.0.0.5", "ADDRESS", 80, 80)]
#[case::port_change_with_direct_routing("10.0.0.5", "DR", 80, 8080)]
fn the_check_can_fail(#[case] address: &str, #[case] method: &str, #[case] port: i32, #[case] target: i32) {
    let server = VirtualServer {
        name: "default-web".into(),
        address: address.into(),
        port,
        protocol: "TCP".into(),
        method: method.into(),
        back_ends: vec![("10.1.0.1".into(), target)],
    };
    let good = VirtualServer {
        address: "10.0.0.9".into(),
        method: "NAT".into(),
        ..server.clone()
    };
    if let Some(verdict) = check(&keepalived_conf(&[good, server], &site())) {
        assert!(verdict.is_err(), "keepalived found nothing wrong");
    }
}

#[test]
fn more_addresses_than_one_instance_announces_are_complained_about() {
    let many = |count: u32| -> Vec<VirtualServer> {
        (0..count)
            .map(|n| announced_only(&std::net::Ipv4Addr::from(0x0a00_0001 + n).to_string()))
            .collect()
    };
    if let Some(verdict) = check(&keepalived_conf(&many(255), &site())) {
        verdict.unwrap();
        assert!(check(&keepalived_conf(&many(300), &site())).unwrap().is_err());
    }
}

#[test]
fn a_named_target_port_is_found_by_the_name_of_the_service_port() {
    let ports = json!([{ "port": 80, "name": "http", "targetPort": "web" }, { "port": 81, "name": "web", "targetPort": "web" }]);
    let targets = json!([{ "port": 8080, "name": "http" }, { "port": 8081, "name": "web" }]);
    let servers = virtual_servers(
        &data(&[("10.0.0.1", "default/web")]),
        &[service("web", &ports)],
        &[endpoints("web", &["10.1.0.1"], &targets)],
    );
    let found: Vec<(i32, i32)> = servers
        .iter()
        .map(|server| (server.port, server.back_ends[0].1))
        .collect();
    assert_eq!(found, [(80, 8081), (81, 8081)]);
}
