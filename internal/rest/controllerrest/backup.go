package controllerrest

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// backupWriteTimeout is the write timeout of a backup: an open backup keeps the store from reusing space.
const backupWriteTimeout = 30 * time.Second

// backup streams the store. A failure breaks the connection, so that the client does not take a partial backup
// for complete.
func (s *server) backup(w http.ResponseWriter, r *http.Request) error {
	if !rest.CallerOf(r.Context()).IsAuthenticated() && !rest.IsLoopbackRequest(r) {
		return farm.Errorf(farm.CodeForbidden,
			"A backup contains every secret of the cloud. Without authentication it can be taken only on the "+
				"controller's own machine: run the command there, or enable authentication")
	}
	if s.openBackup == nil {
		return farm.Errorf(farm.CodeRefused, "This store cannot be backed up")
	}
	stream, size, err := s.openBackup(r.Context())
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "no-store")
	h.Set(api.HeaderBackupSize, strconv.FormatInt(size, 10))
	out := &deadlineWriter{w: w, controller: http.NewResponseController(w)}
	if _, err := io.Copy(out, stream); err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = out.controller.SetWriteDeadline(time.Time{}) // the next call on this connection has no deadline
	return nil
}

// deadlineWriter sets a new deadline for every write, so that a backup may take as long as its reader makes
// progress.
type deadlineWriter struct {
	w          io.Writer
	controller *http.ResponseController
}

// Write implements io.Writer.
func (p *deadlineWriter) Write(b []byte) (int, error) {
	_ = p.controller.SetWriteDeadline(time.Now().Add(backupWriteTimeout)) // a connection without deadlines has no limit
	return p.w.Write(b)
}
