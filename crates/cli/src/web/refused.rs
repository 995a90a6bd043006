//! Why a request was not granted, as HTTP says it.

use std::fmt::Display;

use hyper::StatusCode;
use netchan::control::AskError;

use crate::{failure::Failure, output::printable};

/// Longest reason, characters: some are a stack's.
const WHY_MAX: usize = 1000;

/// A status, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub status: StatusCode,
    pub why: String,
}

impl Refused {
    /// With this status.
    pub fn new(status: StatusCode, why: impl Display) -> Self {
        let why = printable(&why.to_string()).chars().take(WHY_MAX).collect();
        Self { status, why }
    }

    /// The request makes no sense.
    pub fn bad(why: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    /// It makes sense, but not now.
    pub fn conflict(why: impl Display) -> Self {
        Self::new(StatusCode::CONFLICT, why)
    }
}

impl From<AskError> for Refused {
    fn from(why: AskError) -> Self {
        let status = match why {
            AskError::Gone => StatusCode::GONE,
            AskError::Silent(_) => StatusCode::GATEWAY_TIMEOUT,
            AskError::Refused(_) => StatusCode::CONFLICT,
            AskError::Foreign(_) => StatusCode::FORBIDDEN,
            AskError::Garbled(_) => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, why)
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Failed(why) => Self::conflict(why),
            Failure::Usage(why) => Self::bad(why),
            Failure::Unread => Self::conflict("its reader is gone"),
        }
    }
}
