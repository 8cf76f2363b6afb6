package controllerrest

import (
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/rest"
)

// maxPage is the largest number of instances that a client may ask a page to have.
const maxPage = 10000

// instancePage reads which part of the list of instances a client asks for.
func (s *server) instancePage(r *rest.Request) controller.Page {
	p := r.Params
	page := controller.Page{
		Match:      filterOf(p, s.sightOf(r).vmFields(s.vmFields)),
		ExternalID: p.Text("external_id", maxExternalID),
		After:      strings.ToLower(p.String("after")),
		Limit:      p.Int("limit", math.MaxInt, 1, maxPage),
	}
	if page.After != "" && uuid.Validate(page.After) != nil {
		p.Fail("after", "must be the id of an instance")
	}
	return page
}

// slice is the part of a list that a client asks for, in the order of ids.
type slice struct {
	after string
	limit int // 0: no limit
}

// sliceOf reads which part of a list a client asks for.
func sliceOf(p *rest.Params) slice {
	return slice{after: p.Text("after", maxName), limit: p.Int("limit", 0, 1, maxPage)}
}

// cut returns the part of a list; id names its elements. Without a part the list stays as it is.
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
