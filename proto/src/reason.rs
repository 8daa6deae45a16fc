//! How a reason word of the contract is spelled where people read it.

/// A reason word of the contract, `JOB_RUNNING`, as conditions and events want it: `JobRunning`.
pub fn camel(reason: &str) -> String {
    if reason.chars().any(|c| c.is_ascii_lowercase()) {
        return reason.to_owned();
    }
    let mut word = String::with_capacity(reason.len());
    for part in reason.split('_') {
        let mut chars = part.chars().filter(char::is_ascii_alphanumeric);
        word.extend(chars.next());
        word.extend(chars.map(|c| c.to_ascii_lowercase()));
    }
    if word.chars().next().is_some_and(|c| c.is_ascii_alphabetic()) {
        word
    } else {
        format!("Fault{word}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_words_become_one_word() {
        for (reason, expected) in [
            ("JOB_RUNNING", "JobRunning"),
            ("NETWORK_WITHOUT_LOAD_BALANCER", "NetworkWithoutLoadBalancer"),
            ("PORT_53_TAKEN", "Port53Taken"),
            ("ADDRESS_IS_IPV6", "AddressIsIpv6"),
            ("AddressKept", "AddressKept"),
            ("431", "Fault431"),
            ("", "Fault"),
        ] {
            assert_eq!(camel(reason), expected);
        }
    }
}
