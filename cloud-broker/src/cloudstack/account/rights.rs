//! What the keys' role was seen to allow and to refuse. Pure.
//!
//! Decides what a refusal is about. 432 (401 of old servers) is about the role, unless the call named a project: then it may be that
//! the caller is no member of it, which says nothing of the other tenants of the account. Another code is about one object.

use std::collections::BTreeMap;

use crate::cloudstack::types::ProjectId;
use crate::cloudstack::{ApiError, Command};

/// Commands by the project that the call named.
#[derive(Debug, Default)]
pub(super) struct Rights(BTreeMap<(Option<String>, Command), bool>);

impl Rights {
    /// Learns from a call, in a project or in none.
    pub(super) fn learn(&mut self, command: Command, project: Option<&str>, error: Option<&ApiError>) {
        let allowed = match error {
            None => true,
            Some(ApiError::Denied(refusal)) if matches!(refusal.code, Some(432 | 401)) => false,
            Some(_) => return,
        };
        self.0.insert((project.map(str::to_owned), command), allowed);
    }

    /// Other keys have other rights.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// What calls that named no project have shown, and those that named this one.
    pub(super) fn of(&self, project: Option<&ProjectId>) -> BTreeMap<Command, bool> {
        let shown_in = |wanted: Option<&str>| {
            let entries = self.0.iter().filter(|((of, _), _)| of.as_deref() == wanted);
            entries
                .map(|((_, command), allowed)| (*command, *allowed))
                .collect::<BTreeMap<_, _>>()
        };
        let mut rights = shown_in(None);
        if let Some(project) = project {
            rights.extend(shown_in(Some(project.as_str())));
        }
        rights
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloudstack::Refusal;

    const COMMAND: Command = Command::ListNetworks;

    fn refused(code: u16) -> ApiError {
        ApiError::Denied(Refusal {
            command: COMMAND,
            code: Some(code),
            text: String::new(),
        })
    }

    /// What is known in project `p1`, in `p2`, and outside of projects.
    fn says(rights: &Rights) -> [Option<bool>; 3] {
        let project = |text: &str| ProjectId::parse(text).unwrap();
        [Some("p1"), Some("p2"), None].map(|of| rights.of(of.map(project).as_ref()).get(&COMMAND).copied())
    }

    #[test]
    fn a_refusal_in_one_tenants_project_says_nothing_of_the_others() {
        let mut rights = Rights::default();
        rights.learn(COMMAND, Some("p1"), Some(&refused(432)));
        assert_eq!(says(&rights), [Some(false), None, None]);
        rights.learn(COMMAND, None, None);
        assert_eq!(says(&rights), [Some(false), Some(true), Some(true)]);
    }

    #[test]
    fn a_refusal_without_a_project_is_about_the_role() {
        let mut rights = Rights::default();
        rights.learn(COMMAND, None, Some(&refused(432)));
        rights.learn(COMMAND, Some("p1"), None);
        assert_eq!(says(&rights), [Some(true), Some(false), Some(false)]);
    }

    #[test]
    fn a_refusal_of_one_object_says_nothing_of_rights() {
        let mut rights = Rights::default();
        rights.learn(COMMAND, None, Some(&refused(531)));
        assert_eq!(says(&rights), [None, None, None]);
    }
}
