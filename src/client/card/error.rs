//! Errors of cards.

use std::fmt;

/// Why a document is not a card, and which member is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardError {
    /// The path of the member, such as `supportedInterfaces[0].url`; empty: the document itself.
    pub member: String,
    /// The problem.
    pub problem: CardProblem,
}

/// A problem of a card's member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardProblem {
    /// The document is not JSON (RFC 8259); the position of the error.
    NotJson(String),
    /// The document has more bytes than this.
    TooLarge(usize),
    /// Objects and arrays are nested deeper than this.
    TooDeep(usize),
    /// The member occurs twice in its object.
    Twice,
    /// The member has more entries than this.
    TooMany(usize),
    /// The member is required, and absent or empty.
    Missing,
    /// The member does not have this type.
    Type(&'static str),
    /// The member is not a valid URL of its binding; the reason.
    Url(String),
}

impl CardError {
    pub(super) fn of(member: &str, problem: CardProblem) -> CardError {
        CardError { member: member.to_owned(), problem }
    }
}

impl fmt::Display for CardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.member.as_str() {
            "" => f.write_str("the agent card ")?,
            member => write!(f, "the agent card's member {member} ")?,
        }
        match &self.problem {
            CardProblem::NotJson(why) => write!(f, "is not JSON: {why}"),
            CardProblem::TooLarge(max) => write!(f, "has more than {max} bytes"),
            CardProblem::TooDeep(max) => write!(f, "is nested deeper than {max}"),
            CardProblem::Twice => f.write_str("appears twice in its object"),
            CardProblem::TooMany(max) => write!(f, "has more than {max} entries"),
            CardProblem::Missing => f.write_str("is required and is missing or empty"),
            CardProblem::Type(wanted) => write!(f, "is not {wanted}"),
            CardProblem::Url(why) => write!(f, "cannot be called: {why}"),
        }
    }
}

impl std::error::Error for CardError {}
