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
		Match:      filterParam(p, s.visibilityOf(r).vmFields(s.vmFields)),
		ExternalID: p.Text("external_id", maxExternalID),
		After:      strings.ToLower(p.String("after")),
		Limit:      p.Int("limit", math.MaxInt, 1, maxPage),
	}
	if page.After != "" && uuid.Validate(page.After) != nil {
		p.RecordError("after", "must be the ID of an instance")
	}
	return page
}

// listSlice is the requested part of a list, in the order of IDs.
type listSlice struct {
	afterID string
	limit   int // 0: no limit
}

// sliceParam reads the requested part of a list.
func sliceParam(p *rest.Params) listSlice {
	return listSlice{afterID: p.Text("after", maxName), limit: p.Int("limit", 0, 1, maxPage)}
}

// sliceList returns the part of a list; id returns an element's ID. Without a part the list is unchanged.
func sliceList[T any](list []T, part listSlice, id func(T) string) []T {
	if part == (listSlice{}) {
		return list
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b T) int { return strings.Compare(id(a), id(b)) })
	from := sort.Search(len(list), func(i int) bool { return id(list[i]) > part.afterID })
	list = list[from:]
	if part.limit > 0 {
		list = list[:min(part.limit, len(list))]
	}
	return list
}
