//! The contract as others see it.

mod wire_format;
