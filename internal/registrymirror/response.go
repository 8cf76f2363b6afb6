package registrymirror

import (
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// fail writes an error in the envelope of the API.
func fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "FAIL", "message": message, "body": nil})
}

// failHead passes on what the origin answered to a request for a layer, whose text a HEAD request does not receive.
func failHead(w http.ResponseWriter, status int) {
	messages := map[int]string{
		http.StatusUnauthorized: "the registry does not accept the credential",
		http.StatusForbidden:    "the registry does not permit the download of this layer",
		http.StatusNotFound:     "the registry has no such layer",
	}
	message := messages[status]
	if message == "" {
		message = "the registry responded " + http.StatusText(status)
	}
	fail(w, status, message)
}

// clientTimeout ends a response of which the caller read nothing for that long.
const clientTimeout = 60 * time.Second

// deadlineWriter limits the time of each write: the whole response may take as long as it makes progress.
type deadlineWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	sentBytes  int64
}

func (d *deadlineWriter) Write(p []byte) (int, error) {
	_ = d.controller.SetWriteDeadline(time.Now().Add(clientTimeout)) // a connection without deadlines has no limit
	n, err := d.ResponseWriter.Write(p)
	d.sentBytes += int64(n)
	return n, err
}

// ReadFrom copies in large pieces: a layer is not sent in the small ones that are the default.
func (d *deadlineWriter) ReadFrom(src io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{d}, src, make([]byte, 256<<10))
}

// Unwrap returns the underlying writer for http.ResponseController.
func (d *deadlineWriter) Unwrap() http.ResponseWriter { return d.ResponseWriter }
