//! Which rows of a list an answer holds.

use crate::dispatch::Call;
use crate::error::ApiError;
use crate::state::World;

/// A window over the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    skip: usize,
    take: Option<usize>,
}

impl Page {
    /// The window that a call asks for: `page` and `pagesize` together, or what the server cuts on its own.
    pub(crate) fn of(world: &World, call: &Call) -> Result<Self, ApiError> {
        let most = world.number_setting("default.page.size").unwrap_or(500);
        let (page, size) = (call.args.int("page"), call.args.int("pagesize"));
        match (page, size) {
            (None, None) => Ok(Self {
                skip: 0,
                take: usize::try_from(most).ok(),
            }),
            (None, Some(-1)) => Ok(Self { skip: 0, take: None }),
            (Some(_), Some(-1)) => Err(ApiError::invalid(
                "Can't specify page parameter when pagesize is -1 (Unlimited)",
            )),
            (None, Some(_)) => Err(ApiError::parameter(
                "\"page\" parameter is required when \"pagesize\" is specified",
            )),
            (Some(_), None) => Err(ApiError::parameter(
                "\"pagesize\" parameter is required when \"page\" is specified",
            )),
            (Some(page), Some(size)) => {
                if most >= 0 && size > most {
                    return Err(ApiError::invalid(format!(
                        "Page size can't exceed max allowed page size value: {most}"
                    )));
                }
                let take = usize::try_from(size).map_err(|_| ApiError::runtime("page size is negative"))?;
                let before = usize::try_from(page.max(1) - 1).unwrap_or(0);
                Ok(Self {
                    skip: before.saturating_mul(take),
                    take: Some(take),
                })
            }
        }
    }

    /// The rows in the window.
    pub(crate) fn cut<T>(self, rows: Vec<T>) -> Vec<T> {
        rows.into_iter()
            .skip(self.skip)
            .take(self.take.unwrap_or(usize::MAX))
            .collect()
    }
}
