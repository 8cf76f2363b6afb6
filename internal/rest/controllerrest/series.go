package controllerrest

import (
	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/rest"
)

const maxRangeName = 16 // bytes of the name of a range

// series returns the load of the cloud over time.
func (s *server) series(r *rest.Request) (any, error) {
	over := r.Params.Text("range", maxRangeName)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if over == "" {
		over = api.RangeHour
	}
	return s.controller.Usage.Series(over)
}
