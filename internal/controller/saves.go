package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/admission"
	"github.com/buildyard/buildyard/internal/controller/payloads"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// typeBadScript is the type of the error of a save whose script cannot be decoded.
const typeBadScript = "base64.CorruptInputError"

// SaveImageRequest requests to save an instance as a version of a template. The caller has checked
// types, lengths and combinations.
type SaveImageRequest struct {
	// The destination of the save; with TemplateID "" the template NewTemplateName is created, with
	// both they must agree.
	farm.SaveOptions
	Script    []byte // as decoded
	BadScript error  // the script cannot be decoded: the request ends immediately, without its description
	Caller    string // whose limits it counts against
	NoRevert  error  // why the caller may not revert where the registry leaves that to the controller; nil: they may
}

// SaveImage accepts a save and returns the id of its request once that is durable. The request and
// the task of the instance are one transaction: neither ever exists without the other.
func (c *Controller) SaveImage(ctx context.Context, ask SaveImageRequest) (string, error) {
	checked := checkedSave{SaveImageRequest: ask}
	if err := runChecks(ctx, c, saveChecks, &checked); err != nil {
		return "", err
	}
	inst, opts := checked.inst, checked.destination()
	opts.Scripted = len(ask.Script) > 0 || ask.BadScript != nil
	now := c.now()
	req := &farm.SaveRequest{
		ID: record.NewID(), Status: farm.SavePending, Request: opts, Registry: c.opts.PushRegistry, NodeID: inst.NodeID,
		Caller: ask.Caller, Created: now, Updated: now,
	}
	if inst.VM != nil {
		req.VMUUID = inst.VM.UUID
	}
	if ask.BadScript != nil {
		req.Request.Description = ""
	}
	release, err := c.admission.Admit(ask.Caller,
		admission.Amounts{admission.Saves: 1, admission.SavesSize: int64(record.EncodedSize(req))})
	if err != nil {
		return "", err
	}
	defer release()
	accept, err := c.Idempotency.Changes(ctx, api.SaveImageAnswer{RequestID: req.ID})
	if err != nil {
		return "", err
	}
	if ask.BadScript != nil {
		end := req.AfterFailure(typeBadScript, ask.BadScript.Error(), now)
		return req.ID,
			c.store.Commit(ctx, append(accept, store.Put(c.tables.Saves, req.ID, end, store.IfAbsent))...)
	}
	accept = append(accept, store.Put(c.tables.Saves, req.ID, req, store.IfAbsent))
	if len(ask.Script) > 0 {
		if err := c.payloads.StoreSaveScript(ctx, req.ID, ask.Script); err != nil {
			return "", err
		}
	}
	return req.ID, c.Instances.BeginTask(ctx, inst.ID, farm.SaveBegun, &farm.Task{ID: req.ID, Kind: farm.TaskSave}, accept...)
}

// Save returns a save request with the output of its script; farm.CodeNotFound when
// there is none.
func (c *Controller) Save(ctx context.Context, id string) (*farm.SaveRequest, error) {
	s, _, ok := c.tables.Saves.Get(id)
	if !ok && record.ValidID(id) {
		var err error
		if s, _, err = c.tables.Saves.GetLinearizable(ctx, id); err != nil {
			return nil, err
		}
	}
	if s == nil {
		return nil, farm.NotFound()
	}
	return c.payloads.WithOutput(s, payloads.MaxOutput), nil
}

// listedOutput is how much of a script's output an element of the list shows.
const listedOutput = 4 << 10

// Saves returns at most limit save requests, oldest first, with ids after one and accepted by fits;
// of the output of their scripts only the end. A nil fits accepts all.
func (c *Controller) Saves(after string, limit int, fits func(*farm.SaveRequest) bool) []*farm.SaveRequest {
	var list []*farm.SaveRequest
	for _, s := range c.tables.Saves.Range(after, math.MaxInt) {
		if len(list) == limit {
			break
		}
		if fits == nil || fits(s) {
			list = append(list, c.payloads.WithOutput(s, listedOutput))
		}
	}
	return list
}

// endSave ends a request whose instance, nil when it does not exist, no longer works on it. One
// that ended already stays as it is.
func (c *Controller) endSave(ctx context.Context, w store.Writer, id string, inst *farm.Instance) error {
	_, err := store.Update(ctx, w, c.tables.Saves, id, func(s *farm.SaveRequest) (*farm.SaveRequest, error) {
		return s.AfterInstance(inst, c.now()), nil
	})
	return err
}
