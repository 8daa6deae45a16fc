//! The case table: one test per row, named after its number. Rows about the process (start, conflicts, refused
//! writes) stand with the settings and with the shell.

mod damage;
mod fresh;
mod inherited;
mod moving;
mod requests;
mod sharing;
pub(in crate::keepalived) mod world;
