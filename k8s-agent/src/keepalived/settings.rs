//! What the process is told about the keepalived backend: the environment variables of keepalived-cloud-provider and
//! flags beside them.
//!
//! Decides defaults and reports every fault at once, before anything runs. Leaves the meaning of pools to
//! [`super::pool`].

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use serde_json::{Value, json};

use super::allocation::{IpMode, Rules};
use super::method::{Method, Named};
use super::pool::{Habits, PoolSpec, Pools};
use super::pools_file;

/// Name of the pool that is given as a list of addresses.
const DEFAULT_POOL: &str = "default";

/// Flags of the keepalived backend.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Keepalived backend")]
pub struct KeepalivedArgs {
    /// Namespace of the ConfigMap that kube-keepalived-vip reads; the pod's own if not given, else kube-system.
    #[arg(
        long,
        env = "KEEPALIVED_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = "",
        hide_default_value = true
    )]
    pub keepalived_namespace: String,

    /// Namespace of the pod, from the downward API.
    #[arg(long, env = "POD_NAMESPACE", default_value = "", hide = true)]
    pub pod_namespace: String,

    /// Name of that ConfigMap.
    #[arg(
        long,
        env = "KEEPALIVED_CONFIG_MAP",
        value_name = "NAME",
        default_value = "vip-configmap"
    )]
    pub keepalived_config_map: String,

    /// Addresses to give out: comma list of CIDRs (10.0.0.0/24) and ranges (10.0.0.10-10.0.0.20), used in this order.
    /// Empty: only requested addresses are served.
    #[arg(
        long,
        env = "KEEPALIVED_SERVICE_CIDR",
        value_name = "ADDRESSES",
        default_value = "",
        hide_default_value = true
    )]
    pub keepalived_service_cidr: String,

    /// Addresses never to give out: comma list of addresses, ranges and CIDRs.
    #[arg(
        long,
        env = "KEEPALIVED_SERVICE_RESERVED",
        value_name = "ADDRESSES",
        default_value = "",
        hide_default_value = true
    )]
    pub keepalived_service_reserved: String,

    /// Forward method of Services that name none: NAT, DR, PROXY, VIP, or empty for the consumer's default (NAT).
    #[arg(
        long,
        env = "KEEPALIVED_DEFAULT_FORWARD_METHOD",
        value_name = "METHOD",
        default_value = "",
        hide_default_value = true
    )]
    pub keepalived_default_forward_method: String,

    /// Forward methods that Services may use, comma list.
    #[arg(
        long,
        env = "KEEPALIVED_FORWARD_METHODS",
        value_name = "METHODS",
        default_value = "NAT,DR,PROXY,VIP"
    )]
    pub keepalived_forward_methods: String,

    /// File with named pools: sections [Pool "name"] with addresses, namespaces, services, auto-assign, priority.
    #[arg(long, env = "KEEPALIVED_POOLS_FILE", value_name = "FILE")]
    pub keepalived_pools_file: Option<PathBuf>,

    /// Never give out addresses that end in 0 or 255.
    #[arg(long, env = "KEEPALIVED_AVOID_EDGE_ADDRESSES", num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub keepalived_avoid_edge_addresses: bool,

    /// Serve requested addresses that lie in no pool. With it, whoever may create a Service can claim any address of
    /// the network.
    #[arg(long, env = "KEEPALIVED_ALLOW_ADDRESSES_OUTSIDE_POOLS", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub keepalived_allow_addresses_outside_pools: bool,

    /// ipMode of all addresses: VIP or Proxy; empty for the one that fits the forward method.
    #[arg(
        long,
        env = "KEEPALIVED_IP_MODE",
        value_name = "MODE",
        default_value = "",
        hide_default_value = true
    )]
    pub keepalived_ip_mode: String,

    /// Create the ConfigMap if it is missing; needs the right to create objects of this kind in its namespace.
    #[arg(long, env = "KEEPALIVED_CREATE_CONFIG_MAP", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub keepalived_create_config_map: bool,

    /// Remove entries that an earlier program left for Services which have another address now.
    #[arg(long, env = "KEEPALIVED_PRUNE_STALE_ENTRIES", num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub keepalived_prune_stale_entries: bool,

    /// Print what would be written to the ConfigMap and the Services' statuses, write nothing, and end.
    #[arg(long, env = "KEEPALIVED_DRY_RUN", num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub keepalived_dry_run: bool,
}

/// The settings, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepalivedSettings {
    /// Namespace of the ConfigMap.
    pub namespace: String,
    /// Name of the ConfigMap.
    pub config_map: String,
    /// Create it if it is missing.
    pub create: bool,
    /// Print the plan and end.
    pub dry_run: bool,
    /// Everything that the allocation needs.
    pub rules: Rules,
}

/// All that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the keepalived backend can't run with these settings: {}", .0.join("; "))]
pub struct SettingsError(pub Vec<String>);

impl KeepalivedArgs {
    /// Whether there is anything to give out.
    pub fn has_pools(&self) -> bool {
        self.keepalived_pools_file.is_some() || !self.keepalived_service_cidr.trim().is_empty()
    }

    /// Reads the pools' file, where one is given, and checks everything.
    pub fn settings(&self) -> Result<KeepalivedSettings, SettingsError> {
        let text = match &self.keepalived_pools_file {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                SettingsError(vec![format!(
                    "the pools' file {} can't be read: {error}",
                    path.display()
                )])
            })?,
        };
        self.check(&text)
    }

    /// Checks everything; every fault is reported.
    pub fn check(&self, pools_file: &str) -> Result<KeepalivedSettings, SettingsError> {
        let mut faults = Vec::new();
        let pools = self.pools(pools_file).unwrap_or_else(|bad| {
            faults.extend(bad);
            Pools::default()
        });
        let default_method =
            Method::parse(&self.keepalived_default_forward_method).unwrap_or_else(|unknown| {
                faults.push(format!("the default forward method: {unknown}"));
                Method::default()
            });
        let forbidden = self.forbidden().unwrap_or_else(|unknown| {
            faults.push(format!("the permitted forward methods: {unknown}"));
            BTreeSet::new()
        });
        if forbidden.contains(&default_method.effective()) {
            faults.push(format!(
                "the default forward method {} is not permitted",
                default_method.effective()
            ));
        }
        let ip_mode = match self.keepalived_ip_mode.trim() {
            "" => None,
            word if word.eq_ignore_ascii_case("vip") => Some(IpMode::Vip),
            word if word.eq_ignore_ascii_case("proxy") => Some(IpMode::Proxy),
            other => {
                faults.push(format!("\"{other}\" is no ipMode (VIP, Proxy, or empty)"));
                None
            }
        };
        let config_map = self.keepalived_config_map.trim();
        if config_map.is_empty() {
            faults.push("the name of the ConfigMap (KEEPALIVED_CONFIG_MAP) is empty".to_owned());
        }
        if !faults.is_empty() {
            return Err(SettingsError(faults));
        }
        let namespaces = [
            self.keepalived_namespace.trim(),
            self.pod_namespace.trim(),
            "kube-system",
        ];
        let namespace = namespaces
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default();
        Ok(KeepalivedSettings {
            namespace: namespace.to_owned(),
            config_map: config_map.to_owned(),
            create: self.keepalived_create_config_map,
            dry_run: self.keepalived_dry_run,
            rules: Rules {
                pools,
                default_method,
                forbidden,
                ip_mode,
                prune_stale: self.keepalived_prune_stale_entries,
            },
        })
    }

    fn pools(&self, file: &str) -> Result<Pools, Vec<String>> {
        let mut specs = pools_file::parse(file).map_err(|bad| {
            bad.into_iter()
                .map(|error| format!("the pools' file, {error}"))
                .collect::<Vec<_>>()
        })?;
        if !self.keepalived_service_cidr.trim().is_empty() {
            specs.push(PoolSpec::open(DEFAULT_POOL, &self.keepalived_service_cidr));
        }
        let habits = Habits {
            avoid_edges: self.keepalived_avoid_edge_addresses,
            outside: self.keepalived_allow_addresses_outside_pools,
        };
        Pools::build(&specs, &self.keepalived_service_reserved, habits)
            .map_err(|bad| bad.iter().map(ToString::to_string).collect())
    }

    fn forbidden(&self) -> Result<BTreeSet<Named>, super::method::UnknownMethod> {
        let words = self
            .keepalived_forward_methods
            .split(',')
            .filter(|word| !word.trim().is_empty());
        let permitted = words
            .map(|word| Method::parse(word).map(Method::effective))
            .collect::<Result<BTreeSet<Named>, _>>()?;
        Ok(Named::ALL
            .into_iter()
            .filter(|named| !permitted.contains(named))
            .collect())
    }
}

impl KeepalivedSettings {
    /// What runs, for `/configz`.
    pub fn describe(&self) -> Value {
        let pools: Vec<String> = self.rules.pools.iter().map(ToString::to_string).collect();
        json!({
            "configMap": format!("{}/{}", self.namespace, self.config_map),
            "createConfigMap": self.create,
            "pools": pools,
            "defaultForwardMethod": self.rules.default_method.text(),
            "forbiddenForwardMethods": self.rules.forbidden.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "ipMode": self.rules.ip_mode.map(IpMode::word),
            "pruneStaleEntries": self.rules.prune_stale,
        })
    }

    /// Says in the log what was understood.
    pub fn announce(&self) {
        let (namespace, name) = (&self.namespace, &self.config_map);
        tracing::info!(%namespace, %name, "the keepalived backend writes this ConfigMap");
        for pool in self.rules.pools.iter() {
            tracing::info!(%pool, "address pool");
        }
        if self.rules.pools.is_empty() {
            tracing::warn!("no address pool is configured: only Services that request an address are served");
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rstest::rstest;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        keepalived: KeepalivedArgs,
    }

    fn check(flags: &[&str]) -> Result<KeepalivedSettings, SettingsError> {
        let line = ["agent"].iter().chain(flags);
        Line::parse_from(line).keepalived.check("")
    }

    #[test]
    fn without_anything_the_defaults_are_those_of_the_first_program() {
        let settings = check(&[]).unwrap();
        assert_eq!(
            (settings.namespace.as_str(), settings.config_map.as_str()),
            ("kube-system", "vip-configmap")
        );
        assert!(settings.rules.pools.is_empty() && settings.create && !settings.dry_run);
        assert!(settings.rules.forbidden.is_empty());
    }

    #[test]
    fn the_four_variables_of_the_first_program_are_read_trimmed() {
        let settings = check(&[
            "--keepalived-namespace= lb ",
            "--keepalived-config-map= vips ",
            "--keepalived-service-cidr= 10.210.38.100/26 ",
            "--keepalived-default-forward-method= dr ",
        ])
        .unwrap();
        assert_eq!(
            (settings.namespace.as_str(), settings.config_map.as_str()),
            ("lb", "vips")
        );
        assert_eq!(settings.rules.default_method.text(), "DR");
        let pool = settings.rules.pools.iter().next().unwrap();
        assert_eq!(
            pool.to_string(),
            "default (10.210.38.65-10.210.38.126; 62 usable)"
        );
    }

    #[test]
    fn the_namespace_of_the_pod_is_used_where_none_is_given() {
        assert_eq!(check(&["--pod-namespace=vip"]).unwrap().namespace, "vip");
        assert_eq!(
            check(&["--pod-namespace=vip", "--keepalived-namespace=lb"])
                .unwrap()
                .namespace,
            "lb"
        );
    }

    #[rstest]
    #[case::case_10_ipv6_pool("--keepalived-service-cidr=fd00::/126", "only IPv4 is possible")]
    #[case::reversed_range("--keepalived-service-cidr=10.0.0.9-10.0.0.1", "ends before it starts")]
    #[case::not_unicast("--keepalived-service-cidr=224.0.0.0/24", "no machine can have")]
    #[case::unknown_method("--keepalived-default-forward-method=TUN", "not a forward method")]
    #[case::unknown_permitted_method("--keepalived-forward-methods=NAT,TUN", "not a forward method")]
    #[case::default_not_permitted("--keepalived-forward-methods=DR", "NAT is not permitted")]
    #[case::unknown_mode("--keepalived-ip-mode=none", "no ipMode")]
    #[case::no_name("--keepalived-config-map=", "is empty")]
    #[case::missing_file("--keepalived-pools-file=/nowhere/pools", "can't be read")]
    fn a_bad_setting_is_refused_at_the_start(#[case] flag: &str, #[case] part: &str) {
        let error = Line::parse_from(["agent", flag])
            .keepalived
            .settings()
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let error = check(&["--keepalived-service-cidr=x,fd00::1", "--keepalived-ip-mode=none"]).unwrap_err();
        assert_eq!(error.0.len(), 3);
    }

    #[test]
    fn the_file_comes_before_the_list() {
        let line = Line::parse_from(["agent", "--keepalived-service-cidr=10.0.0.0/29"]);
        let settings = line
            .keepalived
            .check("[Pool \"public\"]\naddresses = 192.0.2.0/29\n")
            .unwrap();
        let names: Vec<&str> = settings
            .rules
            .pools
            .iter()
            .map(|pool| pool.name.as_str())
            .collect();
        assert_eq!(names, ["public", "default"]);
    }

    #[test]
    fn a_switch_can_be_given_alone_or_with_a_value() {
        assert!(check(&["--keepalived-dry-run"]).unwrap().dry_run);
        assert!(!check(&["--keepalived-create-config-map=false"]).unwrap().create);
    }
}
