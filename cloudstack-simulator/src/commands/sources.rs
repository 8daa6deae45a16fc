//! Source lists, as each command reads them.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

/// Most characters of a stored list; the rest is cut without a word.
const STORED: usize = 255;

/// The list of a new load balancer rule: networks or plain addresses of both families, stored with blanks. The error is the entry that is none.
pub(super) fn of_new_balancer(entries: &[String]) -> Result<String, String> {
    for entry in entries {
        let entry = entry.trim();
        if entry.parse::<IpNet>().is_err() && entry.parse::<IpAddr>().is_err() {
            return Err(entry.to_owned());
        }
    }
    Ok(stored(
        &entries
            .iter()
            .map(|entry| entry.trim())
            .collect::<Vec<_>>()
            .join(" "),
    ))
}

/// The list of an updated load balancer rule: IPv4 networks only, stored with commas.
pub(super) fn of_changed_balancer(entries: &[String]) -> Option<String> {
    let good = entries.iter().all(|entry| entry.parse::<Ipv4Net>().is_ok());
    good.then(|| stored(&entries.join(",")))
}

/// Cut as the database cuts.
fn stored(text: &str) -> String {
    text.chars().take(STORED).collect()
}

/// The first entry that is no network of either family.
pub(super) fn no_network(entries: &[String]) -> Option<&String> {
    entries.iter().find(|entry| entry.parse::<IpNet>().is_err())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    #[rstest]
    #[case::networks("10.0.0.0/8,192.168.0.0/16", "10.0.0.0/8 192.168.0.0/16")]
    #[case::blank_after_comma("10.0.0.0/8, 192.168.0.0/16", "10.0.0.0/8 192.168.0.0/16")]
    #[case::plain_address("10.0.0.1", "10.0.0.1")]
    #[case::both_families("0.0.0.0/0,::/0", "0.0.0.0/0 ::/0")]
    fn a_new_rule_stores_its_list_with_blanks(#[case] given: &str, #[case] stored: &str) {
        assert_eq!(of_new_balancer(&list(given)).as_deref(), Ok(stored));
    }

    #[test]
    fn a_long_list_is_cut_in_the_middle_of_an_entry() {
        let many: Vec<String> = (0..20).map(|n| format!("10.{n}.0.0/16")).collect();
        assert_eq!(
            of_new_balancer(&many).map(|text| text.len()),
            Ok(255.min(many.join(" ").len()))
        );
    }

    #[rstest]
    #[case::plain_address("10.0.0.1")]
    #[case::ipv6("::/0")]
    #[case::blank("10.0.0.0/8, 192.168.0.0/16")]
    fn an_update_takes_ipv4_networks_only(#[case] given: &str) {
        assert_eq!(of_changed_balancer(&list(given)), None);
    }
}
