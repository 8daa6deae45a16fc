use std::time::Duration;

use rstest::rstest;

use super::ignored::{TABLE, Takes};
use super::*;

const BROKER: &str = "--broker=unix:///run/broker.sock";

fn read(args: &[&str]) -> Result<CommandLine, clap::Error> {
    CommandLine::read(
        std::iter::once("k8s-agent")
            .chain(args.iter().copied())
            .map(OsString::from),
    )
}

fn settings(args: &[&str]) -> Result<Settings, Vec<String>> {
    let mut all = vec!["--cloud-provider=external-cloudstack", BROKER];
    all.extend(args);
    Settings::try_from(read(&all).unwrap().flags)
}

#[test]
fn the_defaults_are_those_of_kubernetes_cloud_controllers() {
    // O-01
    let settings = settings(&[]).unwrap();
    let election = settings.election.unwrap();
    assert_eq!(
        (election.namespace.as_str(), election.name.as_str()),
        ("kube-system", "cloud-controller-manager")
    );
    let times = [
        election.timing.lease,
        election.timing.renew_deadline,
        election.timing.retry,
    ];
    assert_eq!(times.map(|time| time.as_secs()), [15, 10, 2]);
    assert_eq!(settings.monitor_period, Duration::from_secs(5));
    assert_eq!(settings.status_period, Duration::from_mins(5));
    assert_eq!((settings.access.qps.get(), settings.access.burst.get()), (20, 30));
    assert_eq!(settings.cluster_name, "kubernetes");
    assert_eq!(settings.controllers.iter().count(), 4);
    assert_eq!(settings.rules, crate::node::lifecycle::Rules::default());
}

#[test]
fn every_flag_of_the_stock_manifests_is_understood() {
    let line = read(&[
        "--leader-elect=true",
        "--cloud-provider=external-cloudstack",
        "--cloud-config=/config/cloud-config",
        "--allocate_node_cidrs=false",
        "-v=4",
        "--logtostderr",
        "--feature-gates=CloudControllerManagerWebhook=true",
        "--authorization-always-allow-paths=",
        "--use-service-account-credentials",
        BROKER,
    ])
    .unwrap();
    assert_eq!(line.flags.log.verbosity, 4);
    let expected = [
        "allocate-node-cidrs",
        "authorization-always-allow-paths",
        "cloud-config",
        "feature-gates",
        "use-service-account-credentials",
        "logtostderr",
    ];
    assert_eq!(line.ignored, expected);
    assert!(Settings::try_from(line.flags).is_ok());
}

#[test]
fn every_ignored_flag_is_accepted_in_both_spellings_and_reported_once() {
    for (name, takes) in TABLE {
        let (underscored, value) = (name.replace('-', "_"), "1");
        let twice = match takes {
            Takes::Value => vec![
                format!("--{name}={value}"),
                format!("--{underscored}"),
                value.to_owned(),
            ],
            Takes::Switch => vec![format!("--{name}"), format!("--{underscored}=false")],
        };
        let line = read(&twice.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        assert_eq!(line.ignored, [*name]);
    }
}

#[rstest]
#[case::positional(&["surplus"])]
#[case::unknown(&["--no-such-flag"])]
#[case::boolean_without_equals(&["--leader-elect", "false"])]
#[case::no_duration(&["--node-monitor-period=5"])]
#[case::no_address(&["--broker=http://broker:80"])]
fn what_makes_no_sense_is_an_error(#[case] args: &[&str]) {
    assert!(read(args).is_err());
}

#[rstest]
#[case::star(&["*"], &["cloud-node-controller", "cloud-node-lifecycle-controller", "service-lb-controller", "node-route-controller"])]
#[case::names_alone(&["cloud-node-controller"], &["cloud-node-controller"])]
#[case::aliases(&["cloud-node", "service"], &["cloud-node-controller", "service-lb-controller"])] // O-05
#[case::without_one(&["*", "-route", "-cloud-node-lifecycle"], &["cloud-node-controller", "service-lb-controller"])]
#[case::name_before_star(&["-service", "*"], &["cloud-node-controller", "cloud-node-lifecycle-controller", "node-route-controller"])]
#[case::first_name_counts(&["service", "-service"], &["service-lb-controller"])]
#[case::none(&[], &[])] // O-20
#[case::only_off(&["-service"], &[])]
fn controllers_are_chosen_as_the_flag_says(#[case] words: &[&str], #[case] names: &[&str]) {
    let chosen = Controllers::parse(words.iter().copied()).unwrap();
    assert_eq!(chosen.iter().map(Controller::name).collect::<Vec<_>>(), names);
}

#[test]
fn an_unknown_controller_is_quoted_also_behind_a_minus() {
    // O-25, O-26
    let unknown = Controllers::parse(["foo", "-bar", "service"]).unwrap_err();
    let text = unknown.iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("\"foo\"") && text.contains("\"-bar\""), "{text}");
}

#[test]
fn names_of_controllers_have_the_usual_form() {
    // O-12, O-13
    for controller in Controller::ALL {
        let name = controller.name();
        assert!(
            name.ends_with("-controller") && name.chars().all(|c| c.is_ascii_lowercase() || c == '-'),
            "{name}"
        );
    }
}

#[rstest]
#[case::nothing_set(&[], Some((10, 10)))] // O-06
#[case::negative(&["--concurrent-node-syncs=-5"], None)] // O-07
#[case::zero(&["--concurrent-node-syncs=0"], None)] // O-08
#[case::same_for_updates(&["--concurrent-node-syncs=5"], Some((5, 5)))] // O-09
#[case::one_is_one(&["--concurrent-node-syncs=1"], Some((1, 1)))]
#[case::two_for_updates(&["--concurrent-node-syncs=5", "--concurrent-node-status-updates=2"], Some((5, 2)))] // O-04, O-10
#[case::negative_updates(&["--concurrent-node-syncs=5", "--concurrent-node-status-updates=-1"], None)] // O-11
fn widths_are_checked(#[case] args: &[&str], #[case] expected: Option<(usize, usize)>) {
    let widths = settings(args)
        .ok()
        .map(|settings| (settings.node_workers, settings.status_workers));
    assert_eq!(widths, expected);
}

#[rstest]
#[case::lock_kind(&["--leader-elect-resource-lock=configmaps"], "only leases")] // O-27
#[case::spinning(&["--node-monitor-period=0"], "--node-monitor-period")]
#[case::spinning_status(&["--node-status-update-frequency=0s"], "--node-status-update-frequency")]
#[case::times(&["--leader-elect-renew-deadline=20s"], "--leader-elect-lease-duration")]
#[case::migration(&["--enable-leader-migration"], "--enable-leader-migration")]
#[case::provider(&["--cloud-provider=aws"], "\"aws\" is unknown")]
#[case::half_a_certificate(&["--broker-ca-file=/ca"], "belong together")]
#[case::tcp_without_certificate(&["--broker=https://b:1"], "needs --broker-ca-file")]
#[case::burst(&["--kube-api-burst=-1"], "--kube-api-burst")]
fn what_can_not_work_is_refused_with_the_flag_named(#[case] args: &[&str], #[case] text: &str) {
    let mut all: Vec<&str> = vec![BROKER];
    if !args.iter().any(|arg| arg.starts_with("--cloud-provider")) {
        all.push("--cloud-provider=external-cloudstack");
    }
    all.extend(args);
    let faults = Settings::try_from(read(&all).unwrap().flags).unwrap_err();
    assert!(faults.len() == 1 && faults[0].contains(text), "{faults:?}");
}

#[test]
fn all_faults_are_told_at_once() {
    let line = read(&[
        "--concurrent-node-syncs=0",
        "--controllers=foo",
        "--node-monitor-period=0s",
    ])
    .unwrap();
    let faults = Settings::try_from(line.flags).unwrap_err();
    assert_eq!(faults.len(), 4, "{faults:?}");
}

#[test]
fn keepalived_alone_needs_no_broker() {
    let line = read(&["--cloud-provider=keepalived"]).unwrap();
    let settings = Settings::try_from(line.flags).unwrap();
    assert!(settings.broker.is_none() && settings.provider == Provider::Keepalived);
    let line = read(&["--cloud-provider=cloudstack"]).unwrap();
    assert!(Settings::try_from(line.flags).unwrap_err()[0].contains("--broker is required"));
}

#[test]
fn without_election_there_is_none() {
    assert!(settings(&["--leader-elect=false"]).unwrap().election.is_none());
}

#[rstest]
#[case::usual("20", 20)]
#[case::fraction("0.5", 1)]
#[case::default("0", 20)]
#[case::unlimited("-1", u32::MAX)]
fn request_rates_are_read_as_go_does(#[case] qps: &str, #[case] expected: u32) {
    let flag = format!("--kube-api-qps={qps}");
    assert_eq!(settings(&[&flag]).unwrap().access.qps.get(), expected);
}

#[test]
fn several_brokers_are_tried_in_order() {
    let line = read(&[
        "--broker=unix:///a.sock,unix:///b.sock",
        "--broker=unix:///c.sock",
    ])
    .unwrap();
    let addresses: Vec<String> = line.flags.broker.broker.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["unix:///a.sock", "unix:///b.sock", "unix:///c.sock"]);
}

#[test]
fn help_and_version_are_no_failures() {
    for flag in ["--help", "-h", "--version"] {
        assert!(!read(&[flag]).unwrap_err().use_stderr(), "{flag}");
    }
}

#[test]
fn the_port_of_the_endpoint_is_the_one_that_help_shows() {
    assert_eq!(settings(&[]).unwrap().admin.secure_port, Some(SECURE_PORT));
}
