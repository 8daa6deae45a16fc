//! Parameters of a call, in the order they are added.

/// Names (lower case) and values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter. Names are lower case, so that the order is the same before and after the server lowers them.
    #[must_use]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "ids are given by reference, numbers by value"
    )]
    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.0.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds a parameter if there is a value; an absent one and an empty one are different things to a server.
    #[must_use]
    pub(crate) fn maybe(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }
}
