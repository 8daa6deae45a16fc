//! How the consumer forwards what arrives at an address.
//!
//! Decides which words name a forward method and what stands in the ConfigMap for each. Leaves to
//! [`super::allocation`] which method a Service gets. Facts relied on: the consumer accepts a method that *contains*
//! `NAT`, `DR` or `PROXY`, in capitals; no suffix means NAT; an empty value announces the address and forwards
//! nothing, which leaves the work to kube-proxy.

use std::fmt;

/// A forward method that can be asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    /// IPVS rewrites the destination.
    Nat,
    /// IPVS forwards the packet as it is; the port can't change.
    Dr,
    /// HAProxy forwards and sends the PROXY header.
    Proxy,
    /// The address is announced only; kube-proxy forwards.
    Vip,
}

impl Named {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Nat, Self::Dr, Self::Proxy, Self::Vip];

    /// The word in annotations, records and entries.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nat => "NAT",
            Self::Dr => "DR",
            Self::Proxy => "PROXY",
            Self::Vip => "VIP",
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What an entry says about forwarding: a named method, or nothing (which the consumer reads as NAT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Method(pub Option<Named>);

impl Method {
    /// Reads a word in any case, blanks around it ignored; nothing at all is the explicit "no suffix".
    pub fn parse(text: &str) -> Result<Self, UnknownMethod> {
        let word = text.trim().to_ascii_uppercase();
        if word.is_empty() {
            return Ok(Self(None));
        }
        let named = Named::ALL.into_iter().find(|named| named.word() == word);
        named
            .map(|named| Self(Some(named)))
            .ok_or_else(|| UnknownMethod(text.trim().to_owned()))
    }

    /// The text of a record's `forwardMethod`.
    pub const fn text(self) -> &'static str {
        match self.0 {
            Some(named) => named.word(),
            None => "",
        }
    }

    /// Whether only the address is announced.
    pub fn is_vip(self) -> bool {
        self.0 == Some(Named::Vip)
    }

    /// For people: `NAT` where nothing is said.
    pub const fn effective(self) -> Named {
        match self.0 {
            Some(named) => named,
            None => Named::Nat,
        }
    }
}

/// A word that names no forward method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a forward method (NAT, DR, PROXY, VIP, or empty for the consumer's default)")]
pub struct UnknownMethod(pub String);

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::capitals("DR", Some("DR"))]
    #[case::small("dr", Some("DR"))]
    #[case::blanks(" proxy ", Some("PROXY"))]
    #[case::vip("Vip", Some("VIP"))]
    #[case::empty("", Some(""))]
    #[case::unknown("foo/bar", None)]
    #[case::tunnel("TUN", None)]
    #[case::contains_a_method("ADDRESS", None)]
    fn a_word_names_a_method(#[case] text: &str, #[case] expected: Option<&str>) {
        assert_eq!(Method::parse(text).ok().map(Method::text), expected);
    }
}
