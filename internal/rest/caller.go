package rest

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// Caller is the authenticated caller of a request and its current permissions. Without a Guard the caller is
// anonymous and may do everything.
type Caller struct {
	auth.Identity
	Address      string         // of the caller, without a port
	ActsFor      *auth.Identity // the user a program acts for, who needs the same permissions; nil: none is named
	ByController bool           // the controller calls, for a user or for itself; affects only the wording of refusals

	rules *auth.Rules // nil: without a guard
}

// requestAudit is the state of a request on its way through the guard.
type requestAudit struct {
	Caller
	guard      *Guard
	route      *Route
	httpMethod string
	requestID  string

	code             farm.Code // error code of a failure
	refusalReason    string    // why a credential was refused
	subject          string    // what was changed
	credentialErr    error     // why a credential was not accepted that may be a node's, which the handler checks
	countedAsGuess   bool      // the handler has compared a secret, and that was counted as a guess
	callerIdentified bool      // an open route has identified its caller
	handlerReturned  bool      // the handler has returned
}

type auditKey struct{}

func auditOf(ctx context.Context) *requestAudit {
	p, _ := ctx.Value(auditKey{}).(*requestAudit)
	return p
}

// CallerOf returns the caller of a request by its context.
func CallerOf(ctx context.Context) Caller {
	if p := auditOf(ctx); p != nil {
		return p.Caller
	}
	return Caller{}
}

// AuditIdentity sets the identity that an open route has authenticated, or that has tried, for the audit.
func AuditIdentity(r *http.Request, who auth.Identity) {
	if p := auditOf(r.Context()); p != nil {
		p.Identity, p.callerIdentified = who, true
	}
}

// AuditSubject sets the name of what a request changed, for the audit. The object must exist or have been
// created: an unknown name may be a secret in the wrong field.
func AuditSubject(r *http.Request, name string) {
	if p := auditOf(r.Context()); p != nil {
		p.subject = clipReason(name)
	}
}

// ActorOf returns the actor that is recorded for changes made by the request with this context.
func ActorOf(ctx context.Context) farm.Actor {
	p := auditOf(ctx)
	if p == nil {
		return farm.Actor{}
	}
	return farm.Actor{User: p.Name, KeyID: p.KeyID, Address: p.Address, RequestID: p.requestID, ForUser: p.forUser()}
}

// forUser returns the name of the user a program acts for; "" if it names none or itself.
func (p *requestAudit) forUser() string {
	if p.ActsFor == nil || p.ActsFor.Name == p.Name {
		return ""
	}
	return p.ActsFor.Name
}

// AuditFailure records the failure of a route that writes its own error response, for the audit.
func AuditFailure(r *http.Request, err error) {
	if p := auditOf(r.Context()); p != nil {
		p.recordFailure(err)
	}
}

// IsAuthenticated reports whether the caller is authenticated.
func (c Caller) IsAuthenticated() bool { return c.Identity.Method != "" }

// IsNode reports whether the caller is a node: it may do only what its orders allow.
func (c Caller) IsNode() bool { return c.Identity.Method == auth.ByNode }

// NodeKeyAllows reports whether the API key that a node joined with allows a permission.
func (c Caller) NodeKeyAllows(p farm.Permission) bool {
	return c.rules == nil || c.rules.KeyAllows(c.Identity, p)
}

// Owner returns the owner name of what the caller creates; "" for the root user and for anonymous callers.
func (c Caller) Owner() string {
	if c.Root {
		return ""
	}
	return cmp.Or(c.KeyID, c.Name)
}

// RequirePermission refuses a caller without a permission, for checks of a handler in addition to its route.
func (c Caller) RequirePermission(p farm.Permission) error {
	if c.allowsBoth(func(r *auth.Rules, who auth.Identity) bool { return r.Allows(who, p) }) {
		return nil
	}
	if c.IsNode() && c.rules.KeyAllows(c.Identity, p) {
		return c.MissingOrder(p, "use this route")
	}
	return c.explainRefusal(auth.Forbidden(p), func(r *auth.Rules, who auth.Identity) bool { return r.Allows(who, p) })
}

// explainRefusal names the credential and the service in a refusal to a program that acts for a user, since "You" could
// mean either of them.
func (c Caller) explainRefusal(refusal error, allows func(*auth.Rules, auth.Identity) bool) error {
	var e *farm.Error
	if c.ActsFor == nil && !c.ByController || c.rules == nil || !errors.As(refusal, &e) {
		return refusal
	}
	what, ok := strings.CutPrefix(e.Message, "You need the ")
	if !ok {
		return refusal
	}
	whose := "The controller's credential"
	if c.ActsFor != nil && !allows(c.rules, *c.ActsFor) {
		whose = "Your credential"
	}
	return farm.Errorf(e.Code, "%s needs the %s at the %s", whose, what, c.rules.Service())
}

// allowsBoth reports whether something is allowed to both the caller and the user it acts for.
func (c Caller) allowsBoth(allows func(*auth.Rules, auth.Identity) bool) bool {
	return c.rules == nil || allows(c.rules, c.Identity) && (c.ActsFor == nil || allows(c.rules, *c.ActsFor))
}

// HasRight reports whether the caller has a right on a resource.
func (c Caller) HasRight(kind farm.ResourceType, id string, right farm.Permission) bool {
	return c.allowsBoth(func(r *auth.Rules, who auth.Identity) bool { return r.AllowsOn(who, kind, id, right) })
}

// RequireRight refuses a caller without a right on a resource.
func (c Caller) RequireRight(kind farm.ResourceType, id string, right farm.Permission) error {
	if c.HasRight(kind, id, right) {
		return nil
	}
	return c.rightRefusal(kind, id, right)
}

// rightRefusal is the refusal of a caller without a right on a resource.
func (c Caller) rightRefusal(kind farm.ResourceType, id string, right farm.Permission) error {
	return c.explainRefusal(auth.ForbiddenOn(kind, id, right), func(r *auth.Rules, who auth.Identity) bool {
		return r.AllowsOn(who, kind, id, right)
	})
}

// ResourcesManaged reports whether rights on single resources count.
func (c Caller) ResourcesManaged() bool { return c.rules != nil && c.rules.Managed() }

// GroupHasRight reports whether a permission group for which the caller acts has a right on a resource.
func (c Caller) GroupHasRight(group string, kind farm.ResourceType, id string, right farm.Permission) bool {
	return c.rules == nil || c.rules.GroupAllowsOn(group, kind, id, right)
}

// ActsAs returns the permission groups for which the caller may make a request: its own name, and the groups
// that it is in. For root, which may use any, it returns none.
func (c Caller) ActsAs() (names []string) {
	if c.Unlimited() || !c.IsAuthenticated() {
		return nil
	}
	for _, name := range append([]string{c.Name}, c.Groups...) {
		if name != "" && c.MayActFor(name) && (c.ActsFor == nil || c.ActsFor.MayActFor(name)) &&
			!slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// ActingGroup reads the permission group for which a request is made from the parameter group. It is required
// where rights on single resources apply, and group_id is refused there. Elsewhere group is ignored and "" is
// returned.
func (c Caller) ActingGroup(p *Params) (string, error) {
	group := p.Text("group", auth.MaxGroupName)
	if !c.ResourcesManaged() {
		return "", p.Err()
	}
	if group == "" {
		p.RecordError("group", "is required: the name of the permission group for which the request is made")
	}
	if p.Has("group_id") {
		p.RecordError("group_id", "cannot be used while resource rights are enforced; use group")
	}
	if err := p.Err(); err != nil {
		return "", err
	}
	if !c.MayActFor(group) || c.ActsFor != nil && !c.ActsFor.MayActFor(group) {
		return "", farm.Errorf(farm.CodeForbidden, "You are not a member of the permission group %s", group)
	}
	return group, nil
}
