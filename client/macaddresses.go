package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/buildyard/buildyard/api"
)

const pathMAC = "/api/v1/macaddr"

// MACFilter selects managed MAC addresses.
type MACFilter string

// The uses.
const (
	AllMACs  MACFilter = ""
	UsedMACs MACFilter = "true"
	FreeMACs MACFilter = "false"
)

// MACAddresses returns the managed addresses in order: at most limit, 1 to 10,000, that come after last; ""
// begins with the first.
func (c *Controller) MACAddresses(
	ctx context.Context, use MACFilter, limit int, last string,
) ([]api.MACAddress, error) {
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	set(q, "in_use", string(use))
	set(q, "last", last)
	return fetch[[]api.MACAddress](ctx, c.service, get(pathMAC, q))
}

// CountMACs returns the number of managed addresses.
func (c *Controller) CountMACs(ctx context.Context, use MACFilter) (int, error) {
	q := url.Values{"count": {"true"}}
	set(q, "in_use", string(use))
	return fetch[int](ctx, c.service, get(pathMAC, q))
}

// PopulateMACs sets the list of managed addresses to the whole range.
func (c *Controller) PopulateMACs(ctx context.Context) error {
	return c.do(ctx, call{method: http.MethodPut, path: pathMAC, again: true}, nil)
}

// PurgeMACs empties the list of managed addresses. Addresses in use stay in use.
func (c *Controller) PurgeMACs(ctx context.Context) error {
	return c.do(ctx, call{method: http.MethodDelete, path: pathMAC, again: true}, nil)
}
