//! Labels of a node: which ones, and how a name of the cloud becomes a legal value.
//!
//! The Apache controller removes every character of a service offering's name that is not a letter or digit, and writes the zone as it is; the
//! Leaseweb one writes `_` for what is not allowed. Schedulers and autoscalers select on these values, so both ways are kept. A zone or region is only
//! changed where it would be refused otherwise.

use std::collections::BTreeMap;

use super::presence::Machine;
use crate::args::Provider;

/// Longest label value that the server takes.
const LONGEST: usize = 63;

/// Old and present label of one property.
pub type Pair = [&'static str; 2];

/// Instance type.
pub const INSTANCE_TYPE: Pair = [
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
];
/// Zone.
pub const ZONE: Pair = [
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/zone",
];
/// Region.
pub const REGION: Pair = [
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/region",
];

/// How a name becomes a legal label value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sanitiser {
    /// What is not allowed is removed.
    Apache,
    /// What is not allowed becomes `_`.
    Leaseweb,
}

/// What the labels should be, and what had to be changed for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Labels to have.
    pub wanted: BTreeMap<String, String>,
    /// Names of zone or region that were not legal, and what became of them.
    pub changed: Vec<(String, String)>,
}

impl Sanitiser {
    /// The word of the flag.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apache => "apache",
            Self::Leaseweb => "leaseweb",
        }
    }

    /// An instance type as a label value; nothing if no legal character is in it.
    pub fn instance_type(self, name: &str) -> Option<String> {
        match self {
            Self::Apache => finish(
                &name
                    .chars()
                    .filter(char::is_ascii_alphanumeric)
                    .collect::<String>(),
            ),
            Self::Leaseweb => self.place(name),
        }
    }

    /// A zone or region as a label value: as it is, if that is legal.
    pub fn place(self, name: &str) -> Option<String> {
        match self {
            Self::Apache => finish(&name.chars().filter(|c| is_allowed(*c)).collect::<String>()),
            Self::Leaseweb => {
                let replaced: String = name
                    .chars()
                    .map(|c| if is_allowed(c) { c } else { '_' })
                    .collect();
                finish(&replaced)
            }
        }
    }
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// At most 63 characters, a letter or digit at both ends.
fn finish(value: &str) -> Option<String> {
    let start = value.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let short = start.get(..LONGEST).unwrap_or(start);
    let value = short.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    if value.is_empty() {
        None
    } else {
        Some(value.to_owned())
    }
}

/// The labels that a machine gives its node. The Apache controller takes the zone as the region where none is configured.
pub fn wanted(machine: &Machine, provider: Provider, sanitiser: Sanitiser) -> Labels {
    let region = match provider {
        Provider::ExternalCloudstack if machine.region.is_empty() => &machine.zone,
        Provider::ExternalCloudstack | Provider::Cloudstack | Provider::Keepalived => &machine.region,
    };
    let mut labels = Labels::default();
    if let Some(value) = sanitiser.instance_type(&machine.instance_type) {
        labels.set(INSTANCE_TYPE, &value);
    }
    for (pair, name) in [(ZONE, &machine.zone), (REGION, region)] {
        let value = sanitiser.place(name);
        let change = (name.clone(), value.clone().unwrap_or_default());
        if change.0 != change.1 && !labels.changed.contains(&change) {
            labels.changed.push(change);
        }
        if let Some(value) = value {
            labels.set(pair, &value);
        }
    }
    labels
}

impl Labels {
    fn set(&mut self, pair: Pair, value: &str) {
        for name in pair {
            self.wanted.insert(name.to_owned(), value.to_owned());
        }
    }
}

/// Present labels that follow the old ones, where the cloud says nothing of the property: labels to set.
pub fn follow_old(
    has: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    [INSTANCE_TYPE, ZONE, REGION]
        .into_iter()
        .filter(|[old, _]| !wanted.contains_key(*old))
        .filter_map(|[old, new]| has.get(old).map(|value| (new.to_owned(), value.clone())))
        .filter(|(new, value)| has.get(new) != Some(value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case::blank("Small Instance", "SmallInstance", "Small_Instance")]
    #[case::dots("m1.small-x_y", "m1smallxy", "m1.small-x_y")]
    #[case::ends("-GPU (big)-", "GPUbig", "GPU__big")]
    #[case::umlaut("Größe L", "GreL", "Gr__e_L")]
    fn an_offering_becomes_a_label_in_both_dialects(
        #[case] name: &str,
        #[case] apache: &str,
        #[case] leaseweb: &str,
    ) {
        assert_eq!(Sanitiser::Apache.instance_type(name).as_deref(), Some(apache));
        assert_eq!(Sanitiser::Leaseweb.instance_type(name).as_deref(), Some(leaseweb));
    }

    #[rstest]
    #[case::legal("zone-1.a_b", Some("zone-1.a_b"), Some("zone-1.a_b"))]
    #[case::blank("Zone 1", Some("Zone1"), Some("Zone_1"))]
    #[case::nothing_legal("äöü", None, None)]
    #[case::empty("", None, None)]
    fn a_zone_is_changed_only_where_it_is_not_legal(
        #[case] name: &str,
        #[case] apache: Option<&str>,
        #[case] leaseweb: Option<&str>,
    ) {
        assert_eq!(Sanitiser::Apache.place(name).as_deref(), apache);
        assert_eq!(Sanitiser::Leaseweb.place(name).as_deref(), leaseweb);
    }

    proptest! {
        #[test]
        fn every_value_is_one_that_the_server_takes(name in any::<String>()) {
            for value in [Sanitiser::Apache, Sanitiser::Leaseweb]
                .into_iter()
                .flat_map(|it| [it.instance_type(&name), it.place(&name)])
                .flatten()
            {
                prop_assert!(!value.is_empty() && value.len() <= 63);
                prop_assert!(value.chars().all(is_allowed));
                prop_assert!(value.starts_with(|c: char| c.is_ascii_alphanumeric()));
                prop_assert!(value.ends_with(|c: char| c.is_ascii_alphanumeric()));
            }
        }
    }

    fn machine(zone: &str, region: &str) -> Machine {
        Machine {
            zone: zone.into(),
            region: region.into(),
            instance_type: "Small Instance".into(),
            ..Machine::example()
        }
    }

    #[rstest]
    #[case::configured(Provider::ExternalCloudstack, "eu", Some("eu"))]
    #[case::apache_falls_back_to_the_zone(Provider::ExternalCloudstack, "", Some("z1"))]
    #[case::leaseweb_does_not(Provider::Cloudstack, "", None)]
    fn the_region_follows_the_provider(
        #[case] provider: Provider,
        #[case] region: &str,
        #[case] expected: Option<&str>,
    ) {
        // N-05, N-22
        let labels = wanted(&machine("z1", region), provider, Sanitiser::Apache).wanted;
        for name in REGION {
            assert_eq!(labels.get(name).map(String::as_str), expected);
        }
        for name in ZONE {
            assert_eq!(labels.get(name).map(String::as_str), Some("z1"));
        }
        for name in INSTANCE_TYPE {
            assert_eq!(labels.get(name).map(String::as_str), Some("SmallInstance"));
        }
    }

    #[test]
    fn a_zone_that_is_not_legal_is_told_once() {
        let labels = wanted(
            &machine("Zone 1", ""),
            Provider::ExternalCloudstack,
            Sanitiser::Apache,
        );
        assert_eq!(labels.changed, [("Zone 1".to_owned(), "Zone1".to_owned())]);
    }

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[rstest]
    #[case::only_old(&[(ZONE[0], "z")], &[], &[(ZONE[1], "z")])] // N-30
    #[case::equal(&[(ZONE[0], "z"), (ZONE[1], "z")], &[], &[])] // N-31
    #[case::different(&[(ZONE[0], "z"), (ZONE[1], "y")], &[], &[(ZONE[1], "z")])] // N-32
    #[case::the_cloud_knows_better(&[(ZONE[0], "wrong")], &[(ZONE[0], "z")], &[])]
    fn present_labels_follow_old_ones_where_the_cloud_is_silent(
        #[case] has: &[(&str, &str)],
        #[case] wanted: &[(&str, &str)],
        #[case] expected: &[(&str, &str)],
    ) {
        assert_eq!(follow_old(&map(has), &map(wanted)), map(expected));
    }
}
