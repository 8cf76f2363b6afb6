package controllerrest

import (
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/rest"
)

// maxPage is the maximum number of instances on a page.
const maxPage = 10000

// instancePage reads the requested page of the list of instances.
func (s *server) instancePage(r *rest.Request) instances.Page {
	p := r.Params
	page := instances.Page{
		Match:      filterOf(p, s.visibilityOf(r).vmFields(s.vmFields)),
		ExternalID: p.Text("external_id", maxExternalID),
		After:      strings.ToLower(p.String("after")),
		Limit:      p.Int("limit", math.MaxInt, 1, maxPage),
	}
	if page.After != "" && uuid.Validate(page.After) != nil {
		p.Fail("after", "must be the ID of an instance")
	}
	return page
}

// slice is the requested part of a list, in the order of IDs.
type slice struct {
	after string
	limit int // 0: no limit
}

// sliceOf reads the requested part of a list.
func sliceOf(p *rest.Params) slice {
	return slice{after: p.Text("after", maxName), limit: p.Int("limit", 0, 1, maxPage)}
}

// cut returns the part of a list; id returns an element's ID. Without a part the list is unchanged.
func cut[T any](list []T, part slice, id func(T) string) []T {
	if part == (slice{}) {
		return list
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b T) int { return strings.Compare(id(a), id(b)) })
	from := sort.Search(len(list), func(i int) bool { return id(list[i]) > part.after })
	list = list[from:]
	if part.limit > 0 {
		list = list[:min(part.limit, len(list))]
	}
	return list
}
