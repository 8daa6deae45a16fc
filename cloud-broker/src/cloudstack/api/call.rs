//! How reads are carried out: with repetition, and page by page.
//!
//! Decides that a project is named wherever a command takes one, and that a read is given up when its caller leaves.

use std::sync::Arc;

use serde_json::Value;

use super::Api;
use super::params::Params;
use crate::cloudstack::account::Caller;
use crate::cloudstack::jobs::Duty;
use crate::cloudstack::paging::{Complete, Next, Pager};
use crate::cloudstack::types::{Entity, Fields};
use crate::cloudstack::{ApiError, Command, CommandClass, Listing, Refusal, retry};

/// A page of a list that is read page by page. The first one is of the size that the operator chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagePlace {
    page: usize,
    size: Option<usize>,
}

/// How many rows are some: a server takes 5 to 10 ms for each (4.22).
const SOME: usize = 16;

impl Api {
    /// One read, repeated while that may help.
    pub(super) async fn read(&self, command: Command, params: Params) -> Result<Value, ApiError> {
        let params = match self.project() {
            Some(project) if command.is_scoped() => params.with("projectid", project),
            Some(_) | None => params,
        };
        let mut attempt = 1;
        loop {
            let pass = self.account().admit(&self.caller(), command).await?;
            let error = match self.account().send(pass, command, &params, attempt).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            self.wait_for_repetition(command.class(), error, attempt).await?;
            attempt += 1;
        }
    }

    /// A list, page by page.
    pub(super) async fn list<T: Entity>(
        &self,
        command: Command,
        params: Params,
    ) -> Result<Listing<T>, ApiError> {
        let mut pager = Pager::new();
        let mut items = Vec::new();
        loop {
            let (params, page) = match pager.next() {
                Next::Unpaged => (params.clone(), 1),
                Next::Page { page, size } => (params.clone().with("page", page).with("pagesize", size), page),
                Next::Done { complete: true } => return Ok(Listing::Complete(Complete::vouched(items))),
                Next::Done { complete: false } => return Ok(Listing::Incomplete(items)),
            };
            if page == 1 {
                items.clear();
            }
            let answer = match self.read(command, params).await {
                Err(ApiError::Rejected(refusal))
                    if refusal.code == Some(431) && pager.next() != Next::Unpaged =>
                {
                    pager.refused();
                    continue;
                }
                answer => answer?,
            };
            let rows: Vec<Option<T>> = rows::<T>(&answer).map(T::parse).collect();
            let ids: Vec<Option<&str>> = rows.iter().map(|row| row.as_ref().map(T::identity)).collect();
            let count = Fields::of(&answer).small("count");
            let new = pager.take(count, &ids);
            items.extend(
                rows.into_iter()
                    .zip(new)
                    .filter_map(|(row, new)| row.filter(|_| new)),
            );
        }
    }

    /// Some rows of a list that may be long, where servers spend their time on every row. A server with smaller pages
    /// shows one of its own.
    pub(super) async fn some<T: Entity>(&self, command: Command, params: Params) -> Result<Vec<T>, ApiError> {
        let page = params.clone().with("page", 1).with("pagesize", SOME);
        let answer = match self.read(command, page).await {
            Err(ApiError::Rejected(refusal)) if refusal.code == Some(431) => {
                self.read(command, params).await?
            }
            answer => answer?,
        };
        Ok(rows::<T>(&answer).filter_map(T::parse).collect())
    }

    /// One page of a list that may be long, and the place of the next one. A server whose pages have become smaller shows the first.
    pub(super) async fn page<T: Entity>(
        &self,
        command: Command,
        params: Params,
        place: PagePlace,
    ) -> Result<(Vec<T>, Option<PagePlace>), ApiError> {
        let (mut page, mut size) = (1, None);
        let answer = if let Some(known) = place.size {
            let there = params.clone().with("page", place.page).with("pagesize", known);
            match self.read(command, there).await {
                Err(ApiError::Rejected(refusal)) if refusal.code == Some(431) => {
                    self.read(command, params).await?
                }
                answer => {
                    (page, size) = (place.page, Some(known));
                    answer?
                }
            }
        } else {
            self.read(command, params).await?
        };
        let shown = rows::<T>(&answer).count();
        let size = size.unwrap_or(shown);
        let count = Fields::of(&answer).small("count").unwrap_or_default();
        let next = (shown > 0 && page * size < count).then_some(PagePlace {
            page: page + 1,
            size: Some(size),
        });
        Ok((rows::<T>(&answer).filter_map(T::parse).collect(), next))
    }

    /// One object by its id, which is the parameter `id`.
    pub(super) async fn find<T: Entity>(
        &self,
        command: Command,
        params: Params,
    ) -> Result<Option<T>, ApiError> {
        let wanted = params.get("id").unwrap_or_default().to_owned();
        let answer = match self.read(command, params).await {
            Err(ApiError::Gone(_)) => return Ok(None),
            answer => answer?,
        };
        let mut unreadable = false;
        for row in rows::<T>(&answer) {
            match T::parse(row) {
                Some(found) if found.identity() == wanted => return Ok(Some(found)),
                Some(_) => {}
                None => unreadable = true,
            }
        }
        if unreadable {
            let reason = format!("the entry of {wanted} can't be read");
            return Err(ApiError::Odd {
                command,
                reason,
                maybe_executed: false,
            });
        }
        Ok(None)
    }

    /// The error for a call that makes no sense.
    pub(super) fn never_sent(command: Command, text: &str) -> ApiError {
        ApiError::Rejected(Refusal {
            command,
            code: None,
            text: format!("not sent, since {text}"),
        })
    }

    pub(super) fn caller(&self) -> Caller {
        Caller {
            tenant: Arc::clone(&self.tenant),
            share: self.share,
            rekeyed: self.rekeyed.clone(),
        }
    }

    pub(super) fn duty(&self, command: Command, object: Option<&str>) -> Duty {
        Duty {
            command,
            tenant: Arc::clone(&self.tenant),
            share: self.share,
            work: self.work.clone(),
            object: object.map(str::to_owned),
        }
    }

    /// Sleeps if the call shall be repeated; gives the error back otherwise.
    pub(super) async fn wait_for_repetition(
        &self,
        class: CommandClass,
        error: ApiError,
        attempt: u32,
    ) -> Result<(), ApiError> {
        match retry::wait(class, &error, attempt, rand::random()) {
            Some(wait) => {
                tokio::time::sleep(self.account().pace().of(wait)).await;
                Ok(())
            }
            None => Err(error),
        }
    }
}

/// The rows of a list, under the names it should have, else under any.
fn rows<T: Entity>(answer: &Value) -> impl Iterator<Item = Fields<'_>> {
    let named = T::KEYS.iter().find(|key| answer.get(**key).is_some()).copied();
    let any = || {
        let object = answer.as_object()?;
        object
            .iter()
            .find(|(_, value)| value.is_array())
            .map(|(key, _)| key.as_str())
    };
    let key = named.or_else(any).unwrap_or_default();
    Fields::of(answer).list(key)
}
