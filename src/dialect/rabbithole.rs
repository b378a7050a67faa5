//! RabbitHole: 0.1 with its four task methods (wire §8).
//!
//! `tasks/send` always waits for the end of the task, as in 0.1. States, parts and codes equal 0.1;
//! push methods and resubscribe do not exist.

use crate::model::Op;

use super::{Dialect, Method, Quirks, Routes, method, v01};

/// RabbitHole.
pub static DIALECT: Dialect =
    Dialect { name: "rabbithole", methods: METHODS, quirks: Quirks::NONE, routes: Routes::NONE };

const METHODS: &[Method] = &[
    method("tasks/send", Op::Send, &v01::WIRE),
    method("tasks/sendSubscribe", Op::Stream, &v01::WIRE),
    method("tasks/get", Op::Get, &v01::WIRE),
    method("tasks/cancel", Op::Cancel, &v01::WIRE),
];
