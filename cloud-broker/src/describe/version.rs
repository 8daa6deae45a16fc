//! Which version the server is, where the key may not ask for it.
//!
//! Decides what other answers show of it. Facts: for a command that the role lacks 4.17 answers 401, later ones 432; 4.22 is the
//! first that finds networks by name, and the first whose rules take other sources and another protocol in place, while older
//! ones say that they did and don't. The roles that are made for Kubernetes clusters may list networks on all of them.

use super::survey::answered;
use crate::cloudstack::types::Version;
use crate::cloudstack::{Api, ApiError, NetworkQuery};

/// A name that no network has.
const NOBODYS_NAME: &str = "kcs-no-network-is-named-like-this";

/// The least version that the server can be, from what it answers; unknown if nothing tells.
pub(super) async fn by_answers(api: &Api, refused_with: Option<u16>) -> Result<Option<Version>, ApiError> {
    if refused_with == Some(401) {
        return Ok(least(refused_with, 0, 0));
    }
    let query = NetworkQuery {
        name: Some(NOBODYS_NAME.to_owned()),
        ..NetworkQuery::default()
    };
    let count = async |query: &NetworkQuery| {
        let networks = answered(api.networks(query).await)?;
        Ok::<_, ApiError>(networks.map(|networks| networks.items().len()))
    };
    let Some(named) = count(&query).await? else {
        return Ok(None);
    };
    let all = match named {
        0 => count(&NetworkQuery::default()).await?.unwrap_or_default(),
        _ => named,
    };
    Ok(least(refused_with, named, all))
}

/// `named` networks were answered to a name that none has, and `all` without one.
fn least(refused_with: Option<u16>, named: usize, all: usize) -> Option<Version> {
    match (refused_with, named, all) {
        (Some(401), _, _) => Some(Version::new(4, 17, 0)),
        (_, 0, 0) => None,
        (_, 0, _) => Some(Version::new(4, 22, 0)),
        (_, _, _) => Some(Version::new(4, 18, 0)),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::role_without_the_command_on_4_17(Some(401), 0, 0, Some(17))]
    #[case::names_are_ignored(Some(432), 6, 6, Some(18))]
    #[case::names_count(Some(432), 0, 6, Some(22))]
    #[case::nothing_is_visible(Some(432), 0, 0, None)]
    #[case::refused_otherwise(Some(530), 2, 2, Some(18))]
    fn what_answers_tell_of_the_version(
        #[case] refused_with: Option<u16>,
        #[case] named: usize,
        #[case] all: usize,
        #[case] minor: Option<u32>,
    ) {
        let expected = minor.map(|minor| Version::new(4, minor, 0));
        assert_eq!(least(refused_with, named, all), expected);
    }
}
