package peers

import (
	"encoding/json"
	"errors"
	"io"
	"regexp"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/transfer"
)

const (
	maxRequestBytes = 128 << 10
	maxRuns         = 4 * blob.MaxFrameSize / blob.BlockSize
	maxHoldingBytes = 4 << 20 // of a response: some TiB of disks
)

// contentIDPattern is the form of a content ID.
var contentIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// readRequest is the body of a request for bytes of a file.
type readRequest struct {
	File string     `json:"file"`
	Runs [][2]int64 `json:"runs"` // offset and length, in the order of the response
}

var errRequest = errors.New("the request is not valid")

// parseRead reads and checks the body of a request for bytes. size is the length of the response.
func parseRead(r io.Reader) (file string, runs []blob.Run, size int64, err error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxRequestBytes+1))
	if err != nil {
		return "", nil, 0, err
	}
	var in readRequest
	if len(raw) > maxRequestBytes || json.Unmarshal(raw, &in) != nil || !layout.ValidFileName(in.File) ||
		len(in.Runs) == 0 || len(in.Runs) > maxRuns {
		return "", nil, 0, errRequest
	}
	for _, run := range in.Runs {
		off, n := run[0], run[1]
		if off < 0 || off > blob.MaxContentSize || n < 1 || n > transfer.MaxPeerRead {
			return "", nil, 0, errRequest
		}
		runs = append(runs, blob.Run{Off: off, Len: n})
		if size += n; size > transfer.MaxPeerRead {
			return "", nil, 0, errRequest
		}
	}
	return in.File, runs, size, nil
}
