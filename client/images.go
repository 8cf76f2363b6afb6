package client

import (
	"context"
	"net/http"

	"github.com/buildyard/buildyard/api"
)

const pathImage = "/api/v1/image"

// SaveRequest describes how to save an instance as a version of a template.
type SaveRequest struct {
	InstanceID      string `json:"id"`
	Tag             string `json:"tag"`
	NewTemplateName string `json:"new_template_name,omitempty"`        // or TargetID
	TargetID        string `json:"target_vm_id,omitempty"`             // template that receives the tag
	Description     string `json:"description,omitempty"`              // of the new version
	Suspend         *bool  `json:"suspend,omitempty"`                  // nil: true; false stops the guest instead
	Script          []byte `json:"script,omitempty"`                   // as text, not base64; runs before the save
	Revert          bool   `json:"revert_before_push,omitempty"`       // remove version RevertTag and newer ones first
	RevertTag       string `json:"revert_tag,omitempty"`               // "": the latest
	SanityTest      bool   `json:"do_suspend_sanity_test,omitempty"`   // resume a second VM from it before the push
	CancelOnFailure bool   `json:"cancel_on_script_failure,omitempty"` // when the script fails

	IdempotencyKey string `json:"-"` // see NewKey
}

// Save requests a save and returns the ID of the request. The instance ends automatically when the save is
// done.
func (c *Controller) Save(ctx context.Context, r SaveRequest) (string, error) {
	answer, err := fetch[api.SaveImageAnswer](ctx, c.service,
		call{method: http.MethodPost, path: pathImage, body: r, key: r.IdempotencyKey})
	return answer.RequestID, err
}

// Saves returns the save requests.
func (c *Controller) Saves(ctx context.Context, o ListOptions) ([]api.SaveImage, error) {
	return fetch[[]api.SaveImage](ctx, c.service, get(pathImage, o.query()))
}

// SaveStatus returns one save request.
func (c *Controller) SaveStatus(ctx context.Context, id string) (api.SaveImage, error) {
	return one[api.SaveImage](ctx, c.service, pathImage, id)
}
