package registryrest

import (
	"fmt"
	"net/http"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
)

// Requests of a node are authorized by the orders that its token names, on the routes marked Ordered, each by
// one of the functions below. See docs/decisions/03-node-membership.md.

// checkNodePull refuses a node without an order to cache a template. For a save it may check whether its tag
// exists.
func checkNodePull(c rest.Caller, ref registry.VersionRef, look bool) error {
	if c.Scope.MayPull(ref.ID) || look && c.Scope.MayLookUp(ref.ID, ref.Tag) {
		return nil
	}
	return c.MissingOrder(permPull, "pull the template "+quoteShort(ref.ID))
}

// checkNodeLayer refuses a node a layer that is not in the templates that it has an order to cache. A layer that
// no template references is served to all pulls, so that pulls continue across reverts.
func (s service) checkNodeLayer(c rest.Caller, root string) error {
	if s.registry.HasLayer(c.Scope.PullTemplates, root) {
		return nil
	}
	return c.MissingOrder(permDownload, "download the layer "+quoteShort(root))
}

// checkNodePush refuses a push of a node that does not belong to one of its running saves. It returns the
// templates on whose layers the push may rest.
func checkNodePush(c rest.Caller, req api.PushRequest) (layers []string, err error) {
	save, ok := c.Scope.FindSave(req.ResumeKey)
	id, _ := registry.ParseID(req.ID)
	want, _ := registry.ParseID(save.TemplateID)
	name := req.Name == "" && req.MustExist
	if save.Name != "" {
		name = req.Name == save.Name
	}
	if !ok || id == "" || id != want || req.Tag != save.Tag || !name || !sameRevert(req.Revert, save.RevertTag) {
		return nil, c.MissingOrder(permOffer,
			fmt.Sprintf("push the tag %s of the template %s like this", quoteShort(req.Tag), quoteShort(req.ID)))
	}
	return []string{want, save.BaseTemplateID}, checkNodeRevert(c, save)
}

// checkNodeResume refuses the continuation of a push that does not belong to a running save of the node.
func checkNodeResume(c rest.Caller, t registry.PushTarget) error {
	if t.Deleted { // while the node pushed
		return checkCreate(c, t)
	}
	save, ok := c.Scope.FindSave(t.ResumeKey)
	if want, _ := registry.ParseID(save.TemplateID); !ok || want != t.TemplateID || save.Tag != t.Tag ||
		save.Reverts() != t.Reverts {
		return c.MissingOrder(permPush, "resume this push")
	}
	return checkNodeRevert(c, save)
}

// checkNodeRevert refuses a save with a revert if the node's own API key may not revert. This is an additional
// condition and never grants a right.
func checkNodeRevert(c rest.Caller, save auth.SaveScope) error {
	if save.Reverts() && !c.NodeKeyAllows(permRevert) && !c.NodeKeyAllows(permSaveRevert) {
		return auth.Forbidden(permRevert)
	}
	return nil
}

func sameRevert(asked *api.PushRevert, ordered *string) bool {
	if asked == nil || ordered == nil {
		return asked == nil && ordered == nil
	}
	return asked.Tag == *ordered
}

// checkNodeUpload refuses all files of a node except the failure logs of the node's instances.
func checkNodeUpload(r *http.Request) error {
	c := rest.CallerOf(r.Context())
	if name := r.PathValue("path"); c.IsNode() && !c.Scope.MayUpload(name) {
		return c.MissingOrder(permUpload, "upload the file "+quoteShort(name))
	}
	return nil
}

// overrideSource sets service and host of rows that a node sends to the node's own, whatever they contain.
func overrideSource(c rest.Caller, rows []api.LogRow) {
	if !c.IsNode() || c.Scope.LogRows == nil {
		return
	}
	for i := range rows {
		rows[i].Service, rows[i].MachineName, rows[i].Host = auth.NodeService, c.Scope.LogRows.Machine,
			c.Scope.LogRows.Host
	}
}

// quoteShort quotes a name sent by the caller, for a refusal.
func quoteShort(name string) string { return fmt.Sprintf("%.100q", name) }
