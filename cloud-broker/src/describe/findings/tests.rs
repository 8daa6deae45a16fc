use std::net::Ipv4Addr;

use rstest::rstest;

use super::*;
use crate::cloudstack::Refusal;
use crate::cloudstack::types::{
    MachineId, MachineState, NetworkId, NetworkKind, NetworkService, Nic, Owner, Project, ProjectId, Zone,
    ZoneId,
};
use crate::tenant::{ClusterName, ClusterUid, NameOrId, Policy, Scope};

fn tenant() -> Tenant {
    Tenant {
        cluster: ClusterName::new("prod"),
        scope: Scope::default(),
        policy: Policy::default(),
        uids: ClusterUids::default(),
        region: None,
    }
}

fn refusal(command: Command, code: u16) -> Refusal {
    Refusal {
        command,
        code: Some(code),
        text: "no".into(),
    }
}

fn network(name: &str, services: &[&str]) -> Network {
    let service = |name: &&str| NetworkService {
        name: (*name).into(),
        providers: vec![],
        capabilities: vec![],
    };
    Network {
        id: NetworkId::parse(name).unwrap(),
        name: name.into(),
        kind: NetworkKind::Isolated,
        state: "Implemented".into(),
        zone_id: None,
        zone_name: None,
        vpc_id: None,
        acl_id: None,
        acl_name: None,
        conserve_mode: None,
        services: services.iter().map(service).collect(),
        owner: Owner::default(),
        tags: vec![],
    }
}

fn machine(name: &str, network: &str) -> Machine {
    let nic = Nic {
        network_id: NetworkId::parse(network).ok(),
        network_name: Some(network.into()),
        ipv4: Some(Ipv4Addr::LOCALHOST),
        ipv6: None,
        secondary: vec![],
        public_ip: None,
        public_ip_id: None,
        is_default: true,
    };
    Machine {
        id: MachineId::parse(name).unwrap(),
        name: name.into(),
        display_name: name.into(),
        state: MachineState::Running,
        created: None,
        zone_id: None,
        zone_name: Some("z".into()),
        offering: None,
        nics: vec![nic],
        public_ip: None,
        owner: Owner::default(),
        tags: vec![],
        busy: false,
    }
}

/// Findings of an otherwise sound set-up that was changed by `change`.
fn findings(
    tenant: &Tenant,
    known: &Known,
    change: impl for<'f> FnOnce(&mut Facts<'f>),
) -> Vec<(Severity, &'static str)> {
    let url = "https://cloud.example/client/api".parse().unwrap();
    let uids = ClusterUids::configured(vec![ClusterUid::new("u").unwrap()]);
    let machines = [machine("m1", "n1")];
    let mut facts = Facts {
        tenant,
        url: &url,
        skip_verification: false,
        uids: Some(&uids),
        known,
        machines: Some(&machines),
        failure: None,
        breaker: BreakerState::Closed,
        throttled: None,
        clock_offset: 0,
        certificates: &[],
        used_public_ips: None,
        now: 1_000_000_000,
    };
    change(&mut facts);
    of(&facts)
        .into_iter()
        .map(|finding| (finding.severity, finding.reason))
        .collect()
}

#[test]
fn a_sound_set_up_has_no_findings() {
    let known = Known {
        networks: Some(vec![network("n1", &["Lb"])]),
        ..Known::default()
    };
    assert_eq!(findings(&tenant(), &known, |_| {}), []);
    assert_eq!(
        findings(&tenant(), &Known::default(), |_| {}),
        [],
        "what is not known is no finding"
    );
}

#[rstest]
#[case::keys(
    ApiError::BadCredentials(refusal(Command::ListVirtualMachines, 401)),
    "KEYS_REFUSED"
)]
#[case::away(ApiError::Unreachable { command: Command::ListZones, reason: "x".into(), maybe_executed: false }, "API_UNREACHABLE")]
#[case::odd(ApiError::Odd { command: Command::ListZones, reason: "x".into(), maybe_executed: false }, "API_UNREACHABLE")]
#[case::denied(ApiError::Denied(refusal(Command::ListVirtualMachines, 432)), "API_REFUSES")]
fn a_failing_api_is_the_only_thing_that_is_told_of_the_cloud(
    #[case] error: ApiError,
    #[case] reason: &'static str,
) {
    let known = Known {
        networks: Some(vec![network("n1", &[])]),
        ..Known::default()
    };
    // The error outlives the facts of this one look.
    let error: &'static ApiError = Box::leak(Box::new(error));
    assert_eq!(
        findings(&tenant(), &known, |facts| facts.failure = Some(error)),
        [(Severity::Error, reason)]
    );
}

#[test]
fn a_denial_in_a_project_is_about_the_project() {
    let mut tenant = tenant();
    tenant.scope.project = ProjectId::parse("p").ok();
    let error: &'static ApiError = Box::leak(Box::new(ApiError::Denied(refusal(
        Command::ListVirtualMachines,
        432,
    ))));
    let told = findings(&tenant, &Known::default(), |facts| facts.failure = Some(error));
    assert_eq!(told, [(Severity::Error, "PROJECT_NOT_VISIBLE")]);
}

#[test]
fn what_can_be_seen_is_compared_with_what_is_configured() {
    let mut tenant = tenant();
    tenant.scope = Scope {
        project: ProjectId::parse("p").ok(),
        zones: vec![NameOrId::new("z"), NameOrId::new("elsewhere")],
        networks: vec![NameOrId::new("n1"), NameOrId::new("n9")],
        ..Scope::default()
    };
    let zone = Zone {
        id: ZoneId::parse("z1").unwrap(),
        name: "z".into(),
        network_type: "Advanced".into(),
    };
    let project = |state| Project {
        id: ProjectId::parse("p").unwrap(),
        name: "p".into(),
        state,
    };
    let mut known = Known {
        networks: Some(vec![network("n1", &["Dhcp"]), network("n2", &[])]),
        zones: Some(vec![zone]),
        project: Some(None),
        ..Known::default()
    };
    let told = findings(&tenant, &known, |_| {});
    assert_eq!(
        told,
        [
            (Severity::Error, "NETWORK_NOT_VISIBLE"),
            (Severity::Error, "PROJECT_NOT_VISIBLE"),
            (Severity::Error, "ZONE_NOT_VISIBLE"),
            (Severity::Warning, "NETWORK_WITHOUT_LOAD_BALANCER"),
        ]
    );
    known.project = Some(Some(project(ProjectState::Other("Suspended".into()))));
    assert!(findings(&tenant, &known, |_| {}).contains(&(Severity::Warning, "PROJECT_NOT_ACTIVE")));
    known.project = Some(Some(project(ProjectState::Active)));
    assert!(
        !findings(&tenant, &known, |_| {})
            .iter()
            .any(|(_, reason)| reason.starts_with("PROJECT"))
    );
}

#[test]
fn a_scope_without_a_machine_is_told() {
    let mut tenant = tenant();
    tenant.scope.networks = vec![NameOrId::new("n2")];
    assert_eq!(
        findings(&tenant, &Known::default(), |_| {}),
        [(Severity::Warning, "NO_MACHINES")]
    );
    assert_eq!(
        findings(&tenant, &Known::default(), |facts| facts.machines = None),
        []
    );
}

#[test]
fn a_missing_right_weighs_as_much_as_what_it_is_needed_for() {
    let rights = BTreeMap::from([
        (Command::CreateLoadBalancerRule, false),
        (Command::DeleteLoadBalancerRule, false),
        (Command::CreateFirewallRule, false),
        (Command::ListZones, false),
        (Command::ListNetworks, true),
    ]);
    let known = Known {
        rights,
        ..Known::default()
    };
    let told = findings(&tenant(), &known, |_| {});
    let severities: Vec<Severity> = told.iter().map(|(severity, _)| *severity).collect();
    assert_eq!(severities, [Severity::Error, Severity::Warning, Severity::Info]);
    assert!(told.iter().all(|(_, reason)| *reason == "RIGHT_MISSING"));
}

#[rstest]
#[case::over(-1, Some((Severity::Error, "CERTIFICATE_OVER")))]
#[case::soon(3600, Some((Severity::Warning, "CERTIFICATE_SOON_OVER")))]
#[case::long(365 * 24 * 3600, None)]
fn a_certificate_is_told_before_it_ends(#[case] left: i64, #[case] told: Option<(Severity, &'static str)>) {
    let certificates: &'static [Certificate] = Box::leak(Box::new([Certificate {
        of: "a".into(),
        not_after: 1_000_000_000 + left,
    }]));
    let found = findings(&tenant(), &Known::default(), |facts| {
        facts.certificates = certificates;
    });
    assert_eq!(found, Vec::from_iter(told));
}

#[rstest]
#[case::few(1, None)]
#[case::nearly_all(4, Some((Severity::Info, "QUOTA_NEARLY_USED")))]
#[case::all(5, Some((Severity::Warning, "QUOTA_USED")))]
fn a_limit_is_told_before_it_is_reached(#[case] used: u32, #[case] told: Option<(Severity, &'static str)>) {
    let mut tenant = tenant();
    tenant.policy.max_public_ips = Some(5);
    let found = findings(&tenant, &Known::default(), |facts| {
        facts.used_public_ips = Some(used);
    });
    assert_eq!(found, Vec::from_iter(told));
}

#[test]
fn doubts_about_the_way_to_the_api_are_told() {
    let told = findings(&tenant(), &Known::default(), |facts| {
        facts.skip_verification = true;
        facts.clock_offset = -300;
        facts.breaker = BreakerState::Open {
            since: runtime::clock::now(),
        };
    });
    assert_eq!(
        told,
        [
            (Severity::Error, "API_UNREACHABLE"),
            (Severity::Warning, "CERTIFICATE_NOT_VERIFIED"),
            (Severity::Warning, "CLOCK_OFF"),
        ]
    );
    let none = ClusterUids::default();
    let none: &'static ClusterUids = Box::leak(Box::new(none));
    let told = findings(&tenant(), &Known::default(), |facts| facts.uids = Some(none));
    assert_eq!(told, [(Severity::Warning, "CLUSTER_UID_MISSING")]);
}

#[test]
fn a_hit_of_the_rate_limit_is_told_for_a_while() {
    let told = |ago| {
        findings(&tenant(), &Known::default(), |facts| {
            facts.throttled = Some(Duration::from_secs(ago));
        })
    };
    assert_eq!(told(5), [(Severity::Warning, "RATE_LIMIT_HIT")]);
    assert_eq!(told(3600), []);
}

#[test]
fn every_reason_is_in_the_documentation() {
    let source = concat!(include_str!("../findings.rs"), include_str!("connection.rs"));
    let is_reason =
        |text: &&str| text.len() > 4 && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let mut used: Vec<&str> = source.split('"').filter(is_reason).collect();
    used.sort_unstable();
    used.dedup();
    let mut told: Vec<&str> = REASONS.iter().map(|(reason, _)| *reason).collect();
    told.sort_unstable();
    assert_eq!(used, told);
}
