package rest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// AuditRecord describes one change that a caller made or was refused. The only caller-controlled texts in it
// are the verified name, the name of the user a program acts for, and the name of an existing or created
// object.
type AuditRecord struct {
	Time           time.Time   `json:"time"`
	RequestID      string      `json:"request"`            // ID of the request
	CredentialName string      `json:"who"`                // the name of the credential; "" without a credential
	ForUser        string      `json:"for_user,omitempty"` // the user that a program acts for; "" for itself
	Method         auth.Method `json:"method"`             // the authentication method
	KeyID          string      `json:"key_id,omitempty"`
	Address        string      `json:"address"`
	HTTPMethod     string      `json:"verb"`  // HTTP method
	Route          string      `json:"route"` // the route's pattern; "" if no route matches
	Outcome        string      `json:"outcome"`
	Subject        string      `json:"about,omitempty"`  // what was changed, if the route alone does not identify it
	OwnEvents      bool        `json:"-"`                // the change has separate events that name the caller
	Reason         string      `json:"reason,omitempty"` // why a credential was refused
	// LeftOutRefusals is the number of refusals, from any address, that came too often to be recorded one by one since
	// the last recorded refusal.
	LeftOutRefusals int64 `json:"left_out,omitempty"`
}

// Outcomes other than error codes.
const outcomeDone = "done"

// Auditor keeps audit records. It must not block.
type Auditor interface {
	Audit(ctx context.Context, a AuditRecord)
}

// refusalCodes are the error codes of requests that were denied access.
var refusalCodes = map[farm.Code]bool{farm.CodeUnauthenticated: true, farm.CodeForbidden: true, farm.CodeTooMany: true}

// recordFailure records why a request failed.
func (p *requestAudit) recordFailure(err error) {
	p.code = farm.CodeOf(err)
	e, ok := errors.AsType[*farm.Error](err)
	switch {
	case !ok || p.code != farm.CodeUnauthenticated:
	case e.Err != nil:
		p.refusalReason = clipReason(e.Err.Error())
	default:
		p.refusalReason = e.Message // which is not part of the response
	}
}

// maxReasonBytes bounds the reason of a refusal in the audit, in bytes.
const maxReasonBytes = 300

func clipReason(text string) string { return text[:min(len(text), maxReasonBytes)] }

// recordFailure records the failure of a handler. Waiting node requests have no requestAudit: only their refusals are
// audited.
func (g *Guard) recordFailure(w http.ResponseWriter, r *http.Request, route *Route, err error) {
	if g == nil || err == nil {
		return
	}
	p := auditOf(r.Context())
	if p != nil {
		p.recordFailure(err)
		return
	}
	p = &requestAudit{
		guard: g, route: route, httpMethod: r.Method, requestID: w.Header().Get(RequestIDHeader),
		handlerReturned: true,
	}
	p.Address = clientAddress(r, g.opts.Proxied)
	p.recordFailure(err)
	p.finish(r.Context())
}

// finish audits a request that has ended.
func (p *requestAudit) finish(ctx context.Context) {
	outcome := outcomeDone
	switch {
	case !p.handlerReturned: // the handler panicked
		outcome = string(farm.CodeInternal)
	case p.code != "":
		outcome = string(p.code)
	}
	changes := p.httpMethod != http.MethodGet && p.httpMethod != http.MethodHead && !p.route.Frequent &&
		p.route.Pattern != ""
	switch {
	// limited, so that failures cannot fill a disk
	case refusalCodes[p.code] || changes && p.code != "" && !p.IsAuthenticated():
		p.guard.auditRefusal(ctx, p.newRecord(outcome))
	case changes || p.callerIdentified && p.code == "":
		p.guard.writeAudit(ctx, slog.LevelInfo, p.newRecord(outcome))
	}
}

// AuditOpened immediately audits that a long-running request, which changes no record, was granted access. name
// is what it was granted access to.
func AuditOpened(r *http.Request, name string) {
	p := auditOf(r.Context())
	if p == nil {
		return
	}
	AuditSubject(r, name)
	p.guard.writeAudit(r.Context(), slog.LevelInfo, p.newRecord(outcomeDone))
}

func (p *requestAudit) newRecord(outcome string) AuditRecord {
	return AuditRecord{
		Time: time.Now().UTC(), RequestID: p.requestID, CredentialName: p.Name, ForUser: p.forUser(),
		Method:  p.Identity.Method,
		KeyID:   p.KeyID,
		Address: p.Address, HTTPMethod: p.httpMethod, Route: p.route.Pattern, Outcome: outcome, Reason: p.refusalReason,
		Subject:   p.subject,
		OwnEvents: p.route.OwnEvents,
	}
}

// auditRefusal audits a refusal, unless there are too many from its address.
func (g *Guard) auditRefusal(ctx context.Context, a AuditRecord) {
	if g.refusalLimiter.CountFrom(a.Address) {
		g.leftOutRefusals.Add(1)
		return
	}
	a.LeftOutRefusals = g.leftOutRefusals.Swap(0)
	g.writeAudit(ctx, slog.LevelWarn, a)
}

func (g *Guard) writeAudit(ctx context.Context, level slog.Level, a AuditRecord) {
	g.opts.Logger.LogAttrs(ctx, level, "audit", slog.String("request", a.RequestID),
		slog.String("who", a.CredentialName),
		slog.String("method", string(a.Method)), slog.String("key", a.KeyID), slog.String("address", a.Address),
		slog.String("verb", a.HTTPMethod), slog.String("route", a.Route), slog.String("outcome", a.Outcome),
		slog.String("reason", a.Reason), slog.String("about", a.Subject), slog.Int64("left_out", a.LeftOutRefusals),
		slog.String("for_user", a.ForUser))
	if g.opts.Auditor != nil {
		g.opts.Auditor.Audit(ctx, a)
	}
}
