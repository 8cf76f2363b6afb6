package controllers

import (
	"cmp"
	"errors"
	"reflect"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/cloudkey"
)

// WithAnnouncement returns what a node knows of its cloud after an announcement. A node that knows no key takes the
// announced one; otherwise the announcement must be signed with the key that the node knows. What the cloud does not
// announce stays as it was.
func WithAnnouncement(known datadir.Cloud, a *api.CloudAnnouncement) (datadir.Cloud, error) {
	if a == nil { // from an older controller
		return known, nil
	}
	if !cloudkey.ValidPublic(a.Key) {
		return known, errors.New("the announced key of the cloud is invalid")
	}
	urls, err := cloudkey.CanonicalURLs(a.URLs)
	if err != nil {
		return known, err
	}
	if !slices.Equal(urls, a.URLs) {
		return known, errors.New("the announced URLs do not have the canonical form")
	}
	if err := cloudkey.CheckCA(a.CA); err != nil {
		return known, err
	}
	known.Key = cmp.Or(known.Key, a.Key)
	signed := cloudkey.Announcement{URLs: a.URLs, CA: a.CA}
	if err := cloudkey.VerifyAnnouncement(known.Key, signed, a.Signature); err != nil {
		return known, err
	}
	if len(urls) > 0 {
		known.AnnouncedURLs = urls
	}
	known.AnnouncedCA = cmp.Or(a.CA, known.AnnouncedCA)
	return known, nil
}

// HandleAnnouncement takes over what the cloud announces, and stores it. It ignores an announcement that is not valid.
func (c *Controllers) HandleAnnouncement(a *api.CloudAnnouncement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, err := WithAnnouncement(c.cloud, a)
	if err != nil {
		c.log.Warn("announcement of the cloud ignored", "error", err)
		return
	}
	if reflect.DeepEqual(next, c.cloud) {
		return
	}
	if err := c.storeLocked(func(id *datadir.Identity) { id.Cloud = next }); err != nil {
		c.log.Warn("storing the announcement of the cloud failed", "error", err)
		return
	}
	c.log.Info("addresses of the cloud stored", "cloud", cloudkey.CloudID(next.Key), "controllers", next.AnnouncedURLs)
	c.cloud = next
	c.trust.SetAnnounced(next.AnnouncedCA)
	c.noteMoveLocked()
}
