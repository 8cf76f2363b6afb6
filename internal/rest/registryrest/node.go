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
// one of the functions below. See docs/decisions/0140.

// nodeMayPull refuses a node that was not told to hold a template. For a save it may look whether its tag is there.
func nodeMayPull(c rest.Caller, ref registry.Ref, look bool) error {
	if c.Scope.MayPull(ref.ID) || look && c.Scope.MayLook(ref.ID, ref.Tag) {
		return nil
	}
	return c.Unordered(permPull, "pull the template "+quoted(ref.ID))
}

// nodeMayLoad refuses a node a layer that is of other templates than those it was told to hold. One that no
// template has any more is served to all who pull, so that pulls go on over reverts.
func (s service) nodeMayLoad(c rest.Caller, root string) error {
	if s.reg.HasLayer(c.Scope.Pull, root) {
		return nil
	}
	return c.Unordered(permDownload, "download the layer "+quoted(root))
}

// nodeMayPush refuses a node a push that is not that of a save under way on it, and says on the layers of which
// templates it may rest.
func nodeMayPush(c rest.Caller, req api.PushRequest) (layers []string, err error) {
	save, ok := c.Scope.SaveOf(req.ResumeKey)
	id, _ := registry.ParseID(req.ID)
	want, _ := registry.ParseID(save.Template)
	name := req.Name == "" && req.MustExist
	if save.Name != "" {
		name = req.Name == save.Name
	}
	if !ok || id == "" || id != want || req.Tag != save.Tag || !name || !sameRevert(req.Revert, save.Revert) {
		return nil, c.Unordered(permOffer, fmt.Sprintf("push the tag %s of the template %s like this", quoted(req.Tag), quoted(req.ID)))
	}
	return []string{want, save.Base}, nodeMayRevert(c, save)
}

// nodeMayGoOn refuses a node the push of anything but a save under way on it.
func nodeMayGoOn(c rest.Caller, t registry.PushTarget) error {
	if t.Deleted { // while the node pushed
		return mayCreate(c, t)
	}
	save, ok := c.Scope.SaveOf(t.ResumeKey)
	if want, _ := registry.ParseID(save.Template); !ok || want != t.Template || save.Tag != t.Tag || save.Reverts() != t.Reverts {
		return c.Unordered(permPush, "go on with this push")
	}
	return nodeMayRevert(c, save)
}

// nodeMayRevert refuses a save with a revert if the node's own user key may not revert. This is an additional
// condition and never grants a right.
func nodeMayRevert(c rest.Caller, save auth.SaveScope) error {
	if save.Reverts() && !c.KeyHas(permRevert) && !c.KeyHas(permSaveRevert) {
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

// nodeMayUpload refuses all files of a node except the failure logs of the node's instances.
func nodeMayUpload(r *http.Request) error {
	c := rest.CallerOf(r.Context())
	if name := r.PathValue("path"); c.IsNode() && !c.Scope.MayUpload(name) {
		return c.Unordered(permUpload, "upload the file "+quoted(name))
	}
	return nil
}

// inNameOf makes rows that a node sends its own, whatever they say.
func inNameOf(c rest.Caller, rows []api.LogRow) {
	if !c.IsNode() || c.Scope.Rows == nil {
		return
	}
	for i := range rows {
		rows[i].Service, rows[i].MachineName, rows[i].Host = auth.NodeService, c.Scope.Rows.Machine, c.Scope.Rows.Host
	}
}

// quoted is a name of the caller's in a refusal.
func quoted(name string) string { return fmt.Sprintf("%.100q", name) }
