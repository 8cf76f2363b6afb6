package registryrest

import (
	"net/http"
	"strconv"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// protocols are the versions of the wire of push and pull that this registry supports.
var protocols = farm.SupportedVersions{
	Subject: "Transfer protocol", Oldest: api.OldestTransferProtocol, Newest: api.TransferProtocol,
	Reader:  "this registry",
	IfNewer: "update the registry, or use the buildnode of the registry's release",
	IfOlder: "update buildnode to the registry's release",
}

// checkProtocol refuses the begin of a push or pull by a client whose protocol this registry does not support.
func checkProtocol(r *http.Request) error {
	text := r.Header.Get(api.TransferHeader)
	if text == "" {
		return nil
	}
	version, err := strconv.Atoi(text)
	if err != nil {
		return farm.Invalid(api.TransferHeader, "must be a number")
	}
	return protocols.Check(version)
}
