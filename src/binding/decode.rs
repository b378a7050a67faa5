//! Decodes params into a call: the read context, the agent that the call names, and the id for a
//! message without an id.

use std::cell::Cell;

use crate::{
    binding::{
        CallContext,
        tenant::{self, TenantNames},
    },
    dialect::{Method, ReadCx},
    fault::{Fault, FaultKind},
    json::{Value, ValueSlot},
    model::{Call, Generation, Op, uuid},
};

impl CallContext<'_> {
    /// Reads the params of this method into a call; `task` is the id in a path.
    ///
    /// # Errors
    /// `PushNotificationNotSupported`, and the fault of the reader.
    #[inline(always)]
    pub fn decode<'p>(
        &mut self,
        method: &'static Method,
        task: Option<&[u8]>,
        params: Option<Value<'p>>,
        pack: &'p mut Vec<u8>,
    ) -> Result<Call<'p>, Fault> {
        self.check_served(method.op)?;
        let cx = self.read_cx(method.op, method.generation(), task);
        // A call is large, so it is returned without a copy.
        let mut decoded = (method.wire.decode)(&cx, params, pack);
        let tenant = cx.tenant.get();
        self.renew_id(&decoded);
        self.add_wait(&mut decoded);
        if method.op == Op::List {
            self.note_filters(params);
        }
        let names_tenant = self.outside_tenant.is_some() || tenant != ValueSlot::default();
        if names_tenant && decoded.is_ok() {
            self.name_tenant(params.and_then(|params| params.at(tenant)))?;
        }
        decoded
    }

    /// Reads the call of an operation of a generation with `read`; `task` is the id in a path.
    ///
    /// # Errors
    /// As [`CallContext::decode`].
    #[inline(always)]
    pub fn decode_by<'p>(
        &mut self,
        op: Op,
        generation: Generation,
        task: Option<&[u8]>,
        read: impl FnOnce(&ReadCx<'_>) -> Result<Call<'p>, Fault>,
    ) -> Result<Call<'p>, Fault> {
        self.check_served(op)?;
        let mut decoded = read(&self.read_cx(op, generation, task));
        self.renew_id(&decoded);
        self.add_wait(&mut decoded);
        decoded
    }

    /// A2A 1.0 §3.3.4: a disabled operation is rejected regardless of its params.
    #[inline(always)]
    fn check_served(&mut self, op: Op) -> Result<(), Fault> {
        match op.is_push() && !self.config.push {
            true => Err(self.not_served(op)),
            false => Ok(()),
        }
    }

    /// The fault of a disabled operation: a caller without permission gets its own fault instead.
    /// The agent in the params is not known yet.
    #[cold]
    fn not_served(&mut self, op: Op) -> Fault {
        self.agent = self.endpoint.agent;
        self.scratch.tenant.clear();
        let checked = if self.needs_checks() { self.check_call(op) } else { Ok(()) };
        checked.err().unwrap_or_else(|| FaultKind::PushNotificationNotSupported.into())
    }

    /// The read context of a call; resets the named tenant.
    #[inline(always)]
    fn read_cx<'c>(
        &'c mut self,
        op: Op,
        generation: Generation,
        task: Option<&'c [u8]>,
    ) -> ReadCx<'c> {
        let (config, dialect) = (self.config, self.endpoint.dialect);
        let after = (op == Op::Subscribe).then(|| self.source.last_event_id()).flatten();
        self.agent = self.endpoint.agent;
        self.scratch.tenant.clear();
        let fresh_id = &self.scratch.fresh_id;
        ReadCx {
            op,
            limits: &config.limits,
            fresh_id: config.fresh_id(dialect, generation, fresh_id),
            after,
            task,
            tokens: Cell::new(config.limits.json_tokens_max),
            tenant: Cell::default(),
        }
    }

    /// Creates the next id for messages without an id, if this call has used the last.
    #[inline(always)]
    fn renew_id(&mut self, decoded: &Result<Call<'_>, Fault>) {
        if let Ok(Call::Send(send)) = decoded
            && send.message.message_id().raw() == self.scratch.fresh_id
        {
            self.scratch.fresh_id = uuid(self.scratch.entropy.bits());
        }
    }

    #[cold]
    fn name_tenant(&mut self, named: Option<Value<'_>>) -> Result<(), Fault> {
        let inside = named.map(|name| name.as_str().ok_or_else(tenant::no_string)).transpose()?;
        self.address(inside.as_deref())
    }

    /// Stores the agent and the tenant of the call that was decoded last; `inside`: the tenant in
    /// its params.
    ///
    /// # Errors
    /// As [`tenant::addressee`].
    pub fn address(&mut self, inside: Option<&str>) -> Result<(), Fault> {
        let names = TenantNames { outside: self.outside_tenant, inside };
        let (service, tenants) = (self.service, &self.config.tenants);
        let grant = self.admission.as_ref().map(|caller| caller.principal.tenants());
        let addressed = tenant::addressee(service, tenants, self.endpoint, names, grant)?;
        self.agent = addressed.agent;
        self.scratch.tenant.push_str(addressed.tenant.unwrap_or_default());
        Ok(())
    }
}
