use std::collections::HashMap;

use secrecy::ExposeSecret as _;

use super::*;
use crate::tenant::{AddressSharing, Machines, NameOrId, PortRange};

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

fn parse_with(source: &str, files: &[(&str, &str)]) -> Result<Config, String> {
    let files: HashMap<&str, &str> = files.iter().copied().collect();
    let read = |path: &Path| {
        let found = path.to_str().and_then(|path| files.get(path));
        found
            .map(|text| text.as_bytes().to_vec())
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    };
    parse(Path::new("/etc/broker/cloud.conf"), source, &read).map_err(|error| error.to_string())
}

fn one(source: &str) -> Cluster {
    let config = parse_with(source, &[]).unwrap();
    assert_eq!(config.clusters.len(), 1);
    config.clusters.into_values().next().unwrap()
}

const KEYS: &str = "api-url = http://cloud.example:8080/client/api\napi-key = A\nsecret-key = S\n";

#[test]
fn the_file_of_the_go_controller_is_read_as_it_is() {
    let cluster = one(
        "[Global]\napi-url = https://cloud.example/client/api\napi-key = abc ; comment\nsecret-key = \"d#e\"\n\
         ssl-no-verify\nproject-id = 3805e7e9-41d8-462e-88eb-44f01eff3d4f\nzone = Zone 1\nregion = r\nversion = 4.20.1.0\n\
         api-rate-limit-qps = 12.5\napi-rate-limit-burst = 30\nvm-cache-ttl = 30\n",
    );
    assert_eq!(cluster.tenant.cluster, ClusterName::of_the_socket());
    assert_eq!(cluster.access.url.as_str(), "https://cloud.example/client/api");
    assert_eq!(cluster.access.api_key.expose_secret(), "abc");
    assert_eq!(cluster.access.secret_key.expose_secret(), "d#e");
    assert!(cluster.access.skip_verification);
    assert_eq!(
        cluster.tenant.scope.project.unwrap().as_str(),
        "3805e7e9-41d8-462e-88eb-44f01eff3d4f"
    );
    assert_eq!(cluster.tenant.scope.zones, [NameOrId::new("Zone 1")]);
    assert_eq!(cluster.tenant.region.as_deref(), Some("r"));
    assert_eq!(cluster.access.version.unwrap().to_string(), "4.20.1");
    assert_eq!(cluster.access.calls_per_second, Some(12.5));
    assert_eq!(cluster.access.burst, Some(30));
    assert_eq!(cluster.machines_ttl, Duration::from_secs(30));
}

#[test]
fn what_is_not_said_has_its_default() {
    let cluster = one(&format!("[Global]\n{KEYS}project-id =\n"));
    let usual = Policy {
        member_ports: PortRange::ALL,
        ..Policy::default()
    };
    assert_eq!(cluster.tenant.policy, usual);
    assert_eq!(cluster.tenant.scope, Scope::default());
    assert_eq!(cluster.machines_ttl, MACHINES_TTL);
    assert!(cluster.tenant.uids.is_unknown());
    assert!(!cluster.access.skip_verification);
}

#[test]
fn a_section_overrides_what_is_global() {
    let config = parse_with(
        &format!(
            "[Global]\n{KEYS}zone = z\ncluster-uid = global-uid\n\
             [Cluster \"prod\"]\nidentity = spiffe://a/b, agent.example\nuid = u1 u2\nnetworks = lab net, other\nmachines = prod-*\n\
             member-ports = 80 - 90\nmax-public-ips = 3\nallowed-addresses = 192.0.2.7, 198.51.100.9/24\n\
             address-sharing = none\ntake-over = no\nshare = 4\nregion = r2\nvm-cache-ttl = 1m\n\
             [Cluster \"test\"]\napi-key = B\nsecret-key = T\nmachines = tag:env = test\nidentity = x\nidentity = y\n"
        ),
        &[],
    )
    .unwrap();
    assert_eq!(config.clusters.len(), 2, "no default cluster beside named ones");
    let prod = &config.clusters[&ClusterName::new("prod")];
    assert_eq!(prod.identities, ["spiffe://a/b", "agent.example"]);
    assert_eq!(prod.tenant.uids.mark(), "u1");
    assert!(prod.tenant.uids.are_ours("u2") && !prod.tenant.uids.are_ours("global-uid"));
    assert_eq!(
        prod.tenant.scope.networks,
        [NameOrId::new("lab net"), NameOrId::new("other")]
    );
    assert_eq!(prod.tenant.scope.zones, [NameOrId::new("z")]);
    let policy = &prod.tenant.policy;
    assert_eq!(
        (policy.member_ports.first(), policy.member_ports.last()),
        (80, 90)
    );
    assert_eq!(policy.max_public_ips, Some(3));
    assert!(policy.allowed_addresses.admit("198.51.100.1".parse().unwrap()));
    assert!(!policy.allowed_addresses.admit("192.0.2.8".parse().unwrap()));
    assert_eq!(policy.address_sharing, AddressSharing::None);
    assert!(!policy.take_over);
    assert_eq!(policy.share.get(), 4);
    assert_eq!(prod.machines_ttl, Duration::from_mins(1));
    let test = &config.clusters[&ClusterName::new("test")];
    assert_eq!(test.access.api_key.expose_secret(), "B");
    assert_eq!(test.identities, ["x", "y"]);
    assert_eq!(
        test.tenant.scope.machines,
        Machines::Tagged {
            key: "env".into(),
            value: "test".into()
        }
    );
    assert!(test.tenant.uids.is_unknown());
}

#[test]
fn the_default_cluster_may_be_written_beside_others() {
    let source = format!(
        "[Global]\n{KEYS}cluster-uid = g\n[Cluster \"default\"]\nnetworks = a\n[Cluster \"b\"]\nnetworks = b\nuid = v\n"
    );
    let config = parse_with(&source, &[]).unwrap();
    let ports = |name| {
        config.clusters[&ClusterName::new(name)]
            .tenant
            .policy
            .member_ports
    };
    assert_eq!(
        (ports("default"), ports("b")),
        (PortRange::ALL, PortRange::NODE_PORTS)
    );
    assert_eq!(
        config.clusters[&ClusterName::of_the_socket()].tenant.uids.mark(),
        "g"
    );
}

#[test]
fn keys_and_authorities_may_stand_in_files_beside_the_configuration() {
    let config = parse_with(
        "[Global]\napi-url = https://c/client/api\napi-key-file = api\nsecret-key-file = /run/secret\nca-file = ca.pem\n",
        &[("/etc/broker/api", "A\n"), ("/run/secret", "S"), ("/etc/broker/ca.pem", CERTIFICATE)],
    )
    .unwrap();
    let access = &config.clusters[&ClusterName::of_the_socket()].access;
    assert_eq!(access.api_key.expose_secret(), "A");
    assert_eq!(access.secret_key.expose_secret(), "S");
    assert!(access.authorities.is_some());
}

#[test]
fn every_fault_is_told_at_once_with_its_line_and_without_a_secret() {
    let source = "[Global]\napi-ulr = http://cloud.example/client/api\napi-key = S3cret1\nsecret-key-file = missing\n\
                  secret-key = S3cret2\nzone\nproject-id = my project\nversion = S3cret3\nnetworks = n\nvm-cache-ttl = soon\n\
                  [Globl]\n[Cluster]\n[Cluster \"a\"]\nmember-ports = 5-4\nallowed-addresses = 192.0.2.0/33\nidentity = *.example\n\
                  address-sharing = maybe\nuid = a=b\nshare = 0\nca-file = broken.pem\nmachines = tag:x\ntake-over = perhaps\n";
    let text = parse_with(source, &[("/etc/broker/broken.pem", "S3cret4")]).unwrap_err();
    assert!(!text.contains("S3cret"), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_file_without_anything_names_what_is_missing() {
    insta::assert_snapshot!(parse_with("", &[]).unwrap_err(), @r"
    /etc/broker/cloud.conf:1: api-url is missing; give the API's address, such as https://cloud.example/client/api
    /etc/broker/cloud.conf:1: api-key is missing; give api-key or api-key-file
    /etc/broker/cloud.conf:1: secret-key is missing; give secret-key or secret-key-file
    ");
}

#[test]
fn keys_of_a_section_come_in_pairs() {
    let text = parse_with(&format!("[Global]\n{KEYS}[Cluster \"a\"]\napi-key = B\n"), &[]).unwrap_err();
    insta::assert_snapshot!(text, @"/etc/broker/cloud.conf:5: secret-key is missing; give secret-key or secret-key-file");
}

#[test]
fn clusters_that_are_not_kept_apart_are_refused() {
    let text = parse_with(
        &format!(
            "[Global]\n{KEYS}[Cluster \"a\"]\nidentity = x\nuid = u\n[Cluster \"b\"]\nnetworks = n\nidentity = x\nuid = v\n\
             [Cluster \"c\"]\nnetworks = n\nuid = w\n"
        ),
        &[],
    )
    .unwrap_err();
    insta::assert_snapshot!(text, @r"
    /etc/broker/cloud.conf:5: cluster a shares its keys with others and is not limited to a project or to networks; give it networks = ... or project-id = ..., or keys of its own
    /etc/broker/cloud.conf:8: identity x stands for a and for b; an identity names one cluster
    /etc/broker/cloud.conf:12: clusters b and c share keys and are not kept apart; give them different networks (all by id or all by name), projects, or machines = <pattern or tag> that can't overlap
    ");
}

#[test]
fn clusters_that_share_keys_and_have_no_uid_are_refused_with_their_lines() {
    let text = parse_with(
        &format!("[Global]\n{KEYS}[Cluster \"a\"]\nnetworks = m\n[Cluster \"b\"]\nnetworks = n\n[Cluster \"c\"]\nnetworks = o\nuid = u\n"),
        &[],
    )
    .unwrap_err();
    insta::assert_snapshot!(text, @r"
    /etc/broker/cloud.conf:5: cluster a shares its keys with others and has no uid, so that another one could say that it is this one; give it uid = <UID of its namespace kube-system>, or keys of its own
    /etc/broker/cloud.conf:7: cluster b shares its keys with others and has no uid, so that another one could say that it is this one; give it uid = <UID of its namespace kube-system>, or keys of its own
    ");
}

#[test]
fn two_spellings_of_one_certificate_name_are_one_identity() {
    let text = parse_with(
        &format!(
            "[Global]\n{KEYS}[Cluster \"a\"]\nidentity = agent.example\nnetworks = m\nuid = u\n\
             [Cluster \"b\"]\nidentity = Agent.Example\nnetworks = n\nuid = v\n"
        ),
        &[],
    )
    .unwrap_err();
    assert!(
        text.contains(":9: identity Agent.Example stands for a and for b"),
        "{text}"
    );
}

#[test]
fn a_key_that_stands_where_a_path_belongs_is_not_shown() {
    let key = "mB4S9kE2yU-1nQ_zR7vT0aLxW3pD5hJ6cF8gK".repeat(2);
    for key in [key.clone(), format!("/{key}+/="), format!("keys/{key}")] {
        let text = parse_with(
            &format!("[Global]\napi-url = http://c/client/api\napi-key = A\nsecret-key-file = {key}\n"),
            &[],
        )
        .unwrap_err();
        assert!(!text.contains("mB4S9kE2yU"), "{text}");
        assert!(text.contains(":4: secret-key-file: "), "{text}");
    }
}

#[test]
fn nothing_printable_shows_a_key() {
    let config = parse_with(
        &format!(
            "[Global]\n{}",
            KEYS.replace("= A", "= S3cret1").replace("= S\n", "= S3cret2\n")
        ),
        &[],
    );
    assert!(!format!("{:?}", config.unwrap()).contains("S3cret"));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(source in proptest::prelude::any::<String>()) {
        let _ = parse_with(&source, &[]);
    }

    #[test]
    fn no_value_makes_it_panic(key in 0..SETTINGS.len(), value in "\\PC{0,20}") {
        let _ = parse_with(&format!("[Cluster \"a\"]\n{} = {value}\n", SETTINGS[key].name), &[]);
    }
}
