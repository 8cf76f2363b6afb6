package fault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// saveOrder is what a save asks for, on the wire.
type saveOrder struct {
	Instance    string `json:"id"`
	Tag         string `json:"tag"` // unique for every save of a run
	NewName     string `json:"new_template_name,omitempty"`
	Target      string `json:"target_vm_id,omitempty"`
	Suspend     bool   `json:"suspend"`
	Script      []byte `json:"script,omitempty"` // base64 on the wire
	MustSucceed bool   `json:"cancel_on_script_failure,omitempty"`
	SanityTest  bool   `json:"do_suspend_sanity_test,omitempty"`
	Revert      bool   `json:"revert_before_push,omitempty"` // of the target's latest version
}

// saveExpectation is a save with what its client knows about the outcome.
type saveExpectation struct {
	saveOrder
	Fails  bool     `json:"fails,omitempty"`  // its script fails on purpose, and the save with it
	May    []string `json:"may,omitempty"`    // parts of the messages with which a kill may fail it
	Holds  []string `json:"holds,omitempty"`  // lines that a start of the version must print
	Lacks  []string `json:"lacks,omitempty"`  // lines that it must not print
	Script string   `json:"script,omitempty"` // in the history instead of its base64
}

// save requests a save and returns the request's ID; without an acknowledgment nothing is known.
func (c *client) save(ctx context.Context, w saveExpectation) (string, error) {
	w.saveOrder.Script = []byte(w.Script)
	entry := call{Op: opSave, Begin: c.history.now(), Instances: []string{w.Instance}, Save: &w}
	var answer api.SaveImageAnswer
	err := c.Send(ctx, http.MethodPost, "/api/v1/image", w.saveOrder, &answer)
	if err == nil && answer.RequestID == "" {
		err = errors.New("a save was acknowledged without a request id")
	}
	entry.Request = answer.RequestID
	c.finish(entry, err)
	return answer.RequestID, err
}

// request looks at a save request; one that is not there has the status notFound.
func (c *client) request(ctx context.Context, id string) (r api.SaveImage, err error) {
	entry := call{Op: opRequest, Begin: c.history.now(), Request: id}
	err = c.Send(ctx, http.MethodGet, "/api/v1/image?id="+url.QueryEscape(id), nil, &r)
	entry.End = c.history.now()
	if errors.Is(err, rig.Refusal("Not found")) {
		r.Status, err = notFound, nil
	}
	entry.State, entry.Acked = r.Status, err == nil
	switch {
	case err != nil:
		entry.Message = err.Error()
	case r.Error != nil:
		entry.Message = r.Error.Message
	}
	c.history.add(entry)
	return r, err
}

// requests returns every save request.
func (c *client) requests(ctx context.Context) (list []api.SaveImage, err error) {
	err = c.Send(ctx, http.MethodGet, "/api/v1/image", nil, &list)
	return list, err
}

// restart asks for a restart of an instance whose VM was started at inst's start date.
func (c *client) restart(ctx context.Context, inst api.Instance) error {
	entry := call{Op: opRestart, Begin: c.history.now(), Instances: []string{inst.InstanceID}, Since: startDate(inst)}
	err := c.Send(ctx, http.MethodPost, "/api/v1/rpc/vm/restart", map[string]string{"instance_id": inst.InstanceID},
		nil)
	c.finish(entry, err)
	return err
}

// version is one tag in the registry.
type version struct {
	Template, Tag string
	Number        int
	Size          int64
}

// versions returns every version of every template in the registry at base.
func versions(ctx context.Context, base string) ([]version, error) {
	c := newClient(base, newHistory())
	var templates []api.Template
	if err := c.Send(ctx, http.MethodGet, "/registry/v2/vm", nil, &templates); err != nil {
		return nil, fmt.Errorf("list the templates: %w", err)
	}
	var all []version
	for _, t := range templates {
		var detail api.TemplateDetail
		if err := c.Send(ctx, http.MethodGet, "/registry/v2/vm?id="+url.QueryEscape(t.ID), nil, &detail); err != nil {
			return nil, fmt.Errorf("look at template %s: %w", t.ID, err)
		}
		for _, v := range detail.Versions {
			all = append(all, version{Template: t.ID, Tag: v.Tag, Number: v.Number, Size: v.Size})
		}
	}
	return all, nil
}

// find returns the request that a save with an unknown answer has made, if it has.
func (c *client) find(ctx context.Context, w saveExpectation) string {
	list, err := c.requests(ctx)
	if err != nil {
		return ""
	}
	i := slices.IndexFunc(list, func(r api.SaveImage) bool { return r.Request.Tag == w.Tag })
	if i < 0 {
		return ""
	}
	return list[i].ID
}
