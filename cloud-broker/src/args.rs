//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use runtime::admin::AdminArgs;
use runtime::flags::GoDuration;
use runtime::link::LinkAddress;
use runtime::log::LogArgs;

/// Port of the health endpoint unless the flags say another one: the agent, in the same pod, has the one before.
pub const SECURE_PORT: u16 = 10259;

/// Faces `CloudStack` for Kubernetes clusters: keeps the API keys, answers where machines are, makes load balancers.
#[derive(Clone, Debug, Parser)]
#[command(name = "cloud-broker", version, max_term_width = 120)]
#[command(mut_arg("secure_port", |arg| arg.default_value("10259")))]
pub struct Args {
    /// Configuration in the Go controller's format, with more keys; it is read again when it changes
    #[arg(long, value_name = "FILE", required_unless_present = "config_reference")]
    pub cloud_config: Option<PathBuf>,

    /// Where agents connect; may be repeated
    #[arg(
        long,
        value_name = "unix:///PATH|https://ADDRESS:PORT",
        required_unless_present = "config_reference"
    )]
    pub listen: Vec<LinkAddress>,

    /// User ids beside the broker's own that may use the Unix socket; may be repeated
    #[arg(long, value_name = "UID", value_delimiter = ',')]
    pub allow_uid: Vec<u32>,

    /// Serve gRPC reflection, for tools such as grpcurl
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set)]
    pub reflection: bool,

    /// Restrict the sources of balancers that are taken over at once, not at their Service's next change
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set)]
    pub tighten_on_adopt: bool,

    /// How often a balancer without changes is looked at for drift
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub drift_period: GoDuration,

    /// Print the keys of the configuration file as a table and end
    #[arg(long, exclusive = true)]
    pub config_reference: bool,

    /// Health, readiness and metrics
    #[command(flatten)]
    pub admin: AdminArgs,

    /// Logs
    #[command(flatten)]
    pub log: LogArgs,
}

impl Args {
    /// The drift period, which is never shorter than a second.
    pub fn drift_period(&self) -> Duration {
        self.drift_period.get().max(Duration::from_secs(1))
    }

    /// The first address that agents reach from other machines.
    pub fn tcp(&self) -> Option<&LinkAddress> {
        let is_tcp = |address: &&LinkAddress| matches!(address, LinkAddress::Tcp { .. });
        self.listen.iter().find(is_tcp)
    }

    /// The endpoint for health and metrics. Where agents come with certificates, --client-ca-file is their CA: none of them may read what is
    /// shown of all clusters, whether or not a section names it.
    pub fn endpoint(&self) -> AdminArgs {
        let agents_have_it = self.tcp().is_some();
        AdminArgs {
            client_ca_file: self.admin.client_ca_file.clone().filter(|_| !agents_have_it),
            ..self.admin.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use rstest::rstest;
    use runtime::flags::normalise;

    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(normalise(line.split(' ').map(Into::into)))
    }

    #[test]
    fn the_command_line_that_scripts_rely_on_is_understood() {
        let args = parse(
            "cloud-broker --cloud-config /c --listen unix:///run/b.sock --listen https://0.0.0.0:8443 --tls-cert-file a \
             --tls-private-key-file b --client-ca-file c --allow-uid 7,8 --bind-address 127.0.0.1 --secure-port 0 -v=4 \
             --logging_format=json --drift-period 1m --tighten-on-adopt --reflection=true",
        )
        .unwrap();
        assert_eq!(args.listen.len(), 2);
        assert_eq!(args.allow_uid, [7, 8]);
        assert_eq!(args.admin.secure_port, Some(0));
        assert_eq!(args.log.verbosity, 4);
        assert_eq!(args.drift_period(), Duration::from_mins(1));
        assert!(args.tighten_on_adopt && args.reflection);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = parse("cloud-broker --cloud-config /c").unwrap_err().to_string();
        assert!(error.contains("--listen"), "{error}");
    }

    #[rstest]
    #[case::agents_on_the_socket_only("--listen unix:///b --client-ca-file c", (Some("c"), None))]
    #[case::agents_with_certificates("--listen unix:///b --listen https://0.0.0.0:1 --client-ca-file c", (None, None))]
    #[case::a_ca_of_its_own("--listen https://0.0.0.0:1 --client-ca-file c --admin-client-ca-file a", (None, Some("a")))]
    fn the_ca_of_agents_lets_nobody_read_metrics(
        #[case] line: &str,
        #[case] cas: (Option<&str>, Option<&str>),
    ) {
        let args = parse(&format!("cloud-broker --cloud-config /c {line}")).unwrap();
        let endpoint = args.endpoint();
        let (client, admin) = cas;
        assert_eq!(endpoint.client_ca_file, client.map(PathBuf::from));
        assert_eq!(endpoint.admin_client_ca_file, admin.map(PathBuf::from));
    }

    #[test]
    fn the_port_of_the_endpoint_is_the_one_that_help_shows() {
        let args = parse("cloud-broker --cloud-config /c --listen unix:///b").unwrap();
        assert_eq!(args.admin.secure_port, Some(SECURE_PORT));
    }

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }
}
