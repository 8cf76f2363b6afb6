package controllerrest

import (
	"math"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/rest"
)

// maxPage is the largest number of instances that a client may ask a page to have.
const maxPage = 10000

// instancePage reads which part of the list of instances a client asks for.
func instancePage(p *rest.Params) controller.Page {
	page := controller.Page{
		ExternalID: p.Text("external_id", maxExternalID),
		After:      strings.ToLower(p.String("after")),
		Limit:      p.Int("limit", math.MaxInt, 1, maxPage),
	}
	if page.After != "" && uuid.Validate(page.After) != nil {
		p.Fail("after", "must be the id of an instance")
	}
	return page
}
