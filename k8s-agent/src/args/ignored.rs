//! Flags of Kubernetes' cloud controllers that have no effect here, so that command lines keep working.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// What stands behind a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// A value, as `--flag value` or `--flag=value`.
    Value,
    /// Nothing, or `=true`, `=false`.
    Switch,
}

use Takes::{Switch, Value};

/// All of them. The second group was valid in 1.24 and stands in old manifests.
pub(super) const TABLE: &[(&str, Takes)] = &[
    ("allocate-node-cidrs", Switch),
    ("allow-untagged-cloud", Switch),
    ("authentication-kubeconfig", Value),
    ("authentication-skip-lookup", Switch),
    ("authentication-token-webhook-cache-ttl", Value),
    ("authentication-tolerate-lookup-failure", Switch),
    ("authorization-always-allow-paths", Value),
    ("authorization-kubeconfig", Value),
    ("authorization-webhook-cache-authorized-ttl", Value),
    ("authorization-webhook-cache-unauthorized-ttl", Value),
    ("cert-dir", Value),
    ("cidr-allocator-type", Value),
    ("cloud-config", Value),
    ("cloud-node-lifecycle-monitor-nodes-workers", Value),
    ("cluster-cidr", Value),
    ("configure-cloud-routes", Switch),
    ("contention-profiling", Switch),
    ("controller-start-interval", Value),
    ("disable-http2-serving", Switch),
    ("external-cloud-volume-plugin", Value),
    ("feature-gates", Value),
    ("http2-max-streams-per-connection", Value),
    ("kube-api-content-type", Value),
    ("leader-migration-config", Value),
    ("log-flush-frequency", Value),
    ("log-json-info-buffer-size", Value),
    ("log-json-split-stream", Switch),
    ("log-text-info-buffer-size", Value),
    ("log-text-split-stream", Switch),
    ("min-resync-period", Value),
    ("node-sync-period", Value),
    ("permit-address-sharing", Switch),
    ("permit-port-sharing", Switch),
    ("profiling", Switch),
    ("requestheader-allowed-names", Value),
    ("requestheader-client-ca-file", Value),
    ("requestheader-extra-headers-prefix", Value),
    ("requestheader-group-headers", Value),
    ("requestheader-uid-headers", Value),
    ("requestheader-username-headers", Value),
    ("route-reconciliation-period", Value),
    ("show-hidden-metrics-for-version", Value),
    ("tls-cipher-suites", Value),
    ("tls-curve-preferences", Value),
    ("tls-min-version", Value),
    ("tls-sni-cert-key", Value),
    ("use-service-account-credentials", Switch),
    ("vmodule", Value),
    ("webhook-bind-address", Value),
    ("webhook-cert-dir", Value),
    ("webhook-secure-port", Value),
    ("webhook-tls-cert-file", Value),
    ("webhook-tls-cipher-suites", Value),
    ("webhook-tls-min-version", Value),
    ("webhook-tls-private-key-file", Value),
    ("webhook-tls-sni-cert-key", Value),
    ("webhooks", Value),
    //
    ("add-dir-header", Switch),
    ("address", Value),
    ("alsologtostderr", Switch),
    ("log-backtrace-at", Value),
    ("log-dir", Value),
    ("log-file", Value),
    ("log-file-max-size", Value),
    ("logtostderr", Switch),
    ("one-output", Switch),
    ("port", Value),
    ("skip-headers", Switch),
    ("skip-log-headers", Switch),
    ("stderrthreshold", Value),
];

/// The same command with these flags, hidden.
pub(super) fn add_to(command: Command) -> Command {
    let args = TABLE.iter().map(|(name, takes)| {
        let arg = Arg::new(*name).long(*name).hide(true).action(ArgAction::Append);
        match takes {
            Value => arg.num_args(1).allow_hyphen_values(true),
            Switch => arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(clap::builder::BoolishValueParser::new()),
        }
    });
    command.args(args)
}

/// Which of them were given.
pub(super) fn given(matches: &ArgMatches) -> Vec<&'static str> {
    let names = TABLE.iter().map(|(name, _)| *name);
    names
        .filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine))
        .collect()
}
