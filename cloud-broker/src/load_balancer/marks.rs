//! Marks: how a rule or an ACL item says whose it is.
//!
//! Decides what a mark looks like, how it is found in a text and how it is written into one without harm to what people
//! wrote around it. Leaves to `ownership` what a mark proves. The form is
//! `kcs1 cluster=<uid> service=<uid with dashes> address=own|given src=<8 hex>[,<8 hex>]`; unknown keys are kept.

use std::collections::BTreeSet;
use std::fmt;

use super::sources::SourcesHash;
use crate::tenant::ClusterUids;

/// The word that a mark begins with.
const WORD: &str = "kcs1";
/// Longest description of a rule that a server takes.
const LONGEST_DESCRIPTION: usize = 4096;

/// Whether the cluster may release the address that a rule is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AddressWord {
    /// Somebody else brought it; it is never released.
    Given,
    /// The cluster took it.
    Own,
}

impl AddressWord {
    /// As marks spell it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Own => "own",
        }
    }
}

/// What a mark says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// UID of the cluster, or `-`.
    pub cluster: String,
    /// UID of the Service, with dashes.
    pub service: String,
    /// Whose the address is; `None` if the word is missing or unknown.
    pub address: Option<AddressWord>,
    /// Which source sets the firewall rules of this port may have.
    pub src: BTreeSet<SourcesHash>,
    /// The sources that were wanted when the rule was adopted: as long as they are, what was found stays.
    pub held: Option<SourcesHash>,
    /// Keys of other versions, as they stand.
    pub other: Vec<(String, String)>,
}

impl Mark {
    /// Whether it was written while nobody said the cluster's UID.
    pub(crate) fn is_nameless(&self) -> bool {
        self.cluster == ClusterUids::NAMELESS
    }

    /// Finds the mark in a text: the word, then `key=value` words up to the first that is none. A mark that names no
    /// cluster or no Service is none.
    pub(crate) fn find(text: &str) -> Option<Self> {
        Self::locate(text).map(|(mark, _)| mark)
    }

    /// The text with this mark in place of the one it has, or behind what people wrote.
    pub(crate) fn written_into(&self, text: &str) -> String {
        let mark = self.to_string();
        let (before, after) = match Self::locate(text) {
            Some((_, span)) => (
                text.get(..span.start).unwrap_or_default(),
                text.get(span.end..).unwrap_or_default(),
            ),
            None => (text, ""),
        };
        let people = [before.trim_end(), after.trim_start()];
        let room = LONGEST_DESCRIPTION.saturating_sub(mark.chars().count() + 2);
        let [before, after] = people.map(|part| part.chars().take(room / 2).collect::<String>());
        [before.as_str(), &mark, &after]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn locate(text: &str) -> Option<(Self, std::ops::Range<usize>)> {
        let mut words = spans(text).peekable();
        while let Some(start) = words.next() {
            if text.get(start.clone()) != Some(WORD) {
                continue;
            }
            let mut end = start.end;
            let mut pairs = Vec::new();
            while let Some(span) = words.peek().cloned() {
                let Some((key, value)) = text.get(span.clone()).and_then(|word| word.split_once('=')) else {
                    break;
                };
                pairs.push((key.to_owned(), value.to_owned()));
                end = span.end;
                words.next();
            }
            if let Some(mark) = Self::from_pairs(pairs) {
                return Some((mark, start.start..end));
            }
        }
        None
    }

    fn from_pairs(pairs: Vec<(String, String)>) -> Option<Self> {
        let (mut cluster, mut service, mut address, mut held) = (None, None, None, None);
        let (mut src, mut other) = (BTreeSet::new(), Vec::new());
        for (key, value) in pairs {
            match key.as_str() {
                "cluster" => cluster = Some(value),
                "service" => service = Some(value.to_ascii_lowercase()),
                "address" if value == "own" => address = Some(AddressWord::Own),
                "address" if value == "given" => address = Some(AddressWord::Given),
                "address" => address = None,
                "src" => src.extend(value.split(',').filter_map(SourcesHash::parse)),
                "held" => held = SourcesHash::parse(&value),
                _ => other.push((key, value)),
            }
        }
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        Some(Self {
            cluster: filled(cluster)?,
            service: filled(service)?,
            address,
            src,
            held,
            other,
        })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORD} cluster={} service={}", self.cluster, self.service)?;
        if let Some(word) = self.address {
            write!(f, " address={}", word.as_str())?;
        }
        if !self.src.is_empty() {
            let src: Vec<&str> = self.src.iter().map(SourcesHash::as_str).collect();
            write!(f, " src={}", src.join(","))?;
        }
        if let Some(held) = &self.held {
            write!(f, " held={}", held.as_str())?;
        }
        self.other
            .iter()
            .try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

fn spans(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let origin = text.as_ptr() as usize;
    text.split_whitespace().map(move |word| {
        let start = word.as_ptr() as usize - origin;
        start..start + word.len()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn mark() -> Mark {
        Mark {
            cluster: "c-1".into(),
            service: "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0".into(),
            address: Some(AddressWord::Own),
            src: ["0a1b2c3d", "ffffffff"]
                .into_iter()
                .filter_map(SourcesHash::parse)
                .collect(),
            held: None,
            other: vec![],
        }
    }

    #[test]
    fn a_mark_is_written_in_the_documented_form() {
        assert_eq!(
            mark().to_string(),
            "kcs1 cluster=c-1 service=0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0 address=own src=0a1b2c3d,ffffffff"
        );
    }

    #[rstest]
    #[case::empty("", None)]
    #[case::no_mark("load balancer of the shop", None)]
    #[case::only_the_word("kcs1", None)]
    #[case::no_service("kcs1 cluster=a address=own", None)]
    #[case::no_cluster("kcs1 service=a", None)]
    #[case::empty_cluster("kcs1 cluster= service=a", None)]
    #[case::part_of_a_word("xkcs1 cluster=a service=b", None)]
    #[case::shortest("kcs1 cluster=a service=b", Some(("a", "b", None)))]
    #[case::any_order("kcs1 address=given service=b cluster=a", Some(("a", "b", Some(AddressWord::Given))))]
    #[case::unknown_word("kcs1 cluster=a service=b address=lent", Some(("a", "b", None)))]
    #[case::text_around("ask ops! kcs1 cluster=a service=b address=own thanks", Some(("a", "b", Some(AddressWord::Own))))]
    #[case::second_is_sound("kcs1 broken kcs1 cluster=a service=b", Some(("a", "b", None)))]
    fn a_mark_is_found_anywhere_in_a_text(
        #[case] text: &str,
        #[case] found: Option<(&str, &str, Option<AddressWord>)>,
    ) {
        let mark = Mark::find(text);
        assert_eq!(
            mark.as_ref()
                .map(|mark| (&*mark.cluster, &*mark.service, mark.address)),
            found
        );
    }

    #[test]
    fn what_people_wrote_and_keys_of_other_versions_are_kept() {
        let text = "ask ops  kcs1 cluster=x service=y new=7 address=given please";
        let mut changed = Mark::find(text).unwrap();
        changed.address = Some(AddressWord::Own);
        assert_eq!(
            changed.written_into(text),
            "ask ops kcs1 cluster=x service=y address=own new=7 please"
        );
    }

    #[test]
    fn a_description_never_outgrows_what_a_server_takes() {
        let text = mark().written_into(&"x".repeat(5000));
        assert!(text.chars().count() <= LONGEST_DESCRIPTION);
        assert_eq!(Mark::find(&text), Some(mark()));
    }

    proptest! {
        #[test]
        fn what_is_written_is_found_and_writing_it_again_changes_nothing(people in "[ a-zäk1=cs\n]{0,40}") {
            let once = mark().written_into(&people);
            prop_assert_eq!(Mark::find(&once), Some(mark()));
            prop_assert_eq!(mark().written_into(&once), once);
        }
    }
}
