package api

// The values of Envelope.Status.
const (
	StatusOK   = "OK"
	StatusFail = "FAIL"
)

// Envelope is the form of every REST response. Body is absent when it is nil.
type Envelope[T any] struct {
	Status  string `json:"status"`         // StatusOK or StatusFail
	Message string `json:"message"`        // empty on success
	Body    T      `json:"body,omitempty"` // the result; absent on failure
}

// DiskInfo is the body of the disk endpoints, in bytes. Absent fields are 0.
type DiskInfo struct {
	Free  int64 `json:"free"`  // bytes
	Total int64 `json:"total"` // bytes
	// Reserved is the part of Free that unfinished pushes may still use.
	Reserved int64 `json:"reserved,omitempty"`
	// Reclaimable is the size of data that no version needs: unreferenced layers, and the trash.
	Reclaimable int64 `json:"reclaimable,omitempty"`
}
