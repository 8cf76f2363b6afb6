package controllerrest

import (
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// maxPage is the largest number of instances that a client may ask a page to have.
const maxPage = 10000

// page is the part of the list of instances that a client asks for. Pages follow the
// order of the ids, so that what comes and goes meanwhile moves nothing to another page.
type page struct {
	externalID string // "": every one
	after      string // "": from the first
	limit      int
}

func instancePage(p *rest.Params) page {
	want := page{
		externalID: p.Text("external_id", maxExternalID),
		after:      strings.ToLower(p.String("after")),
		limit:      p.Int("limit", math.MaxInt, 1, maxPage),
	}
	if want.after != "" && uuid.Validate(want.after) != nil {
		p.Fail("after", "must be the id of an instance")
	}
	return want
}

// of gives the page of instances that are in the order of their ids. The instance
// that the page comes after need not exist any more.
func (w page) of(instances []*farm.Instance) []*farm.Instance {
	if w.after != "" {
		at, found := slices.BinarySearchFunc(instances, w.after, func(i *farm.Instance, id string) int {
			return strings.Compare(i.ID, id)
		})
		if found {
			at++
		}
		instances = instances[at:]
	}
	if w.externalID != "" {
		instances = slices.DeleteFunc(slices.Clone(instances), func(i *farm.Instance) bool { return i.ExternalID != w.externalID })
	}
	return instances[:min(len(instances), w.limit)]
}
