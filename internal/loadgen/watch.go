package loadgen

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/buildyard/buildyard/api"
)

// WatchChange is one line of a watch.
type WatchChange struct {
	Type       string           `json:"type"` // set, gone, synced or ping
	InstanceID string           `json:"instance_id"`
	Instance   api.InstanceItem `json:"instance"`
}

// maxLineBytes bounds one line of a watch, in bytes.
const maxLineBytes = 16 << 20

// errWatchEnded reports that the controller ended the watch.
var errWatchEnded = errors.New("the controller closed the watch")

// WatchLines calls each with every line of the watch of all instances, until it fails or ctx ends.
// present defines whether the existing instances come first. A line is only valid until each
// returns.
func (c *Client) WatchLines(ctx context.Context, present InitialInstances, each func(line []byte) error) error {
	resp, err := c.doRequest(ctx, http.MethodGet, InstancesPath+"/watch"+string(present), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // only for the error message
		return &APIError{resp.StatusCode, fmt.Sprintf("HTTP %d: %s", resp.StatusCode, raw)}
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), maxLineBytes)
	for lines.Scan() {
		if err := each(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return errWatchEnded
}

// InitialInstances defines whether a watch begins with the existing instances.
type InitialInstances string

// The ways to begin a watch.
const (
	IncludeExisting InitialInstances = ""
	ExcludeExisting InitialInstances = "?present=false"
)

// Watch is WatchLines with decoded lines.
func (c *Client) Watch(ctx context.Context, present InitialInstances, each func(WatchChange) error) error {
	return c.WatchLines(ctx, present, func(line []byte) error {
		var change WatchChange
		if err := json.Unmarshal(line, &change); err != nil {
			return fmt.Errorf("watch: invalid line %.100q: %w", line, err)
		}
		return each(change)
	})
}
