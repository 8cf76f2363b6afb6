package controllerrest

import (
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/saves"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// Limits of a save request, in bytes; those of the registry.
const (
	maxSaveTag     = 255
	maxDescription = 4096
)

func (s *server) saveImage(r *rest.Request) (any, error) {
	ask := readSaveRequest(r.Params)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	ask.Caller = rest.CallerName(r.Request)
	ask.NoRevert = rest.CallerOf(r.Context()).RequirePermission("registry_delete")
	id, err := s.controller.Saves.Create(r.Context(), ask)
	if err != nil {
		return nil, err
	}
	return api.SaveImageAnswer{RequestID: id}, nil
}

// readSaveRequest reads the parameters of a save.
func readSaveRequest(p *rest.Params) saves.Request {
	ask := saves.Request{SaveOptions: farm.SaveOptions{
		InstanceID:            p.Required("id"),
		Tag:                   p.Text("tag", maxSaveTag),
		NewTemplateName:       p.Text("new_template_name", maxName),
		TemplateID:            p.String("target_vm_id"),
		Description:           p.String("description"),
		Suspend:               p.Bool("suspend", true),
		RevertBeforePush:      p.Bool("revert_before_push", false),
		RevertTag:             p.Text("revert_tag", maxTag),
		SanityTest:            p.Bool("do_suspend_sanity_test", false),
		CancelOnScriptFailure: p.Bool("cancel_on_script_failure", false),
	}}
	ask.Script, ask.BadScript = saveScriptParam(p)
	switch blank := strings.TrimSpace(ask.NewTemplateName) == ""; {
	case strings.TrimSpace(ask.Tag) == "":
		p.RecordError("tag", "is required")
	case blank && ask.NewTemplateName != "":
		p.RecordError("new_template_name", "must not consist of spaces")
	case blank && ask.TemplateID == "":
		p.RecordError("new_template_name", "is required unless target_vm_id is given")
	case len(ask.Description) > maxDescription:
		p.RecordError("description", "must have at most %d bytes", maxDescription)
	case ask.RevertBeforePush && ask.TemplateID == "":
		p.RecordError("revert_before_push", "requires target_vm_id")
	}
	return ask
}

// saveScriptParam reads the script of a save. A script that cannot be decoded is accepted: its save request fails
// immediately and reports it.
func saveScriptParam(p *rest.Params) (script []byte, bad error) {
	if script, bad = decodeBase64(p.String("script")); bad != nil {
		return nil, bad
	}
	if len(script) > maxScript {
		p.RecordError("script", "must have at most %d bytes when decoded", maxScript)
	}
	return script, nil
}

func (s *server) listImages(r *rest.Request) (any, error) {
	p := r.Params
	id, after, limit := p.String("id"), strings.ToLower(p.String("after")), p.Int("limit", math.MaxInt, 1, maxPage)
	fits := filterParam(p, imageFields)
	if after != "" && uuid.Validate(after) != nil {
		p.RecordError("after", "must be the ID of a save request")
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if id != "" {
		save, err := s.controller.Saves.Get(r.Context(), id)
		if err != nil {
			return nil, err
		}
		return saveToAPI(save), nil
	}
	found := s.controller.Saves.List(after, limit, fits)
	list := make([]api.SaveImage, len(found))
	for i, save := range found {
		list[i] = saveToAPI(save)
	}
	return list, nil
}

// redactedText replaces a script: scripts contain secrets.
const redactedText = "[redacted]"

// saveToAPI converts a save request to its API form.
func saveToAPI(s *farm.SaveRequest) api.SaveImage {
	o := s.Request
	out := api.SaveImage{
		ID: s.ID, Status: string(s.Status), Error: saveErrorToAPI(s),
		Request: api.SaveImageRequest{
			RequestID: s.ID, Priority: farm.DefaultPriority, Timestamp: s.Created, ReserveExpiryTimestamp: time.Time{},
			RegistryAddr: s.Registry, VMID: s.VMUUID, InstanceID: o.InstanceID, NodeID: s.NodeID,
			TemplateID: o.TemplateID, NewTemplateName: o.NewTemplateName, Tag: o.Tag, Description: o.Description,
			Suspend: o.Suspend, DoSuspendTest: o.SanityTest, RevertBeforePush: o.RevertBeforePush,
			RevertTag:             o.RevertTag,
			CancelOnScriptFailure: o.CancelOnScriptFailure,
		},
	}
	if o.Scripted {
		out.Request.Script = redactedText
	}
	if s.Script != nil {
		out.ScriptResult = scriptResultToAPI(s.Script)
	}
	return out
}

func saveErrorToAPI(s *farm.SaveRequest) *api.SaveImageError {
	if s.Status != farm.SaveError {
		return nil
	}
	e := &api.SaveImageError{Message: s.ErrorMessage, Type: s.ErrorType}
	if s.ErrorCode != 0 {
		e.Code = &s.ErrorCode
	}
	return e
}

func (s *server) restartVM(r *rest.Request) (any, error) {
	p := r.Params
	id := p.Required("instance_id")
	var o farm.RestartOptions
	if device := p.Text("usb_device", maxName); device != "" {
		o.USBDevice = &device
	}
	if password := vncPasswordParam(p); password != "" {
		o.VNCPassword = &password
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return nil, s.controller.Instances.Restart(r.Context(), id, o)
}
