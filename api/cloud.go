package api

// PathCloudProof is the route at which a node asks whether a controller belongs to its cloud.
const PathCloudProof = "/queue/v1/cloud"

// CloudProofRequest asks a controller to prove that it belongs to the node's cloud, before the node sends it its
// credential: POST PathCloudProof.
type CloudProofRequest struct {
	Protocol int    `json:"protocol"` // version of the node protocol
	NodeID   string `json:"node_id"`
	Nonce    string `json:"nonce"` // random, 64 hex digits
	URL      string `json:"url"`   // at which the node reaches the controller, in canonical form
	// MAC is HMAC-SHA256 in hex. Its key is the SHA-256 of the node's credential in hex, its text are the lines
	// "buildyard node request 1", node ID, nonce and URL.
	MAC string `json:"mac"`
}

// CloudProof is the body of its answer.
type CloudProof struct {
	// Signature is the Ed25519 signature, as base64url, of the lines "buildyard cloud proof 1", nonce and URL. A
	// controller signs its own URLs only.
	Signature string `json:"signature"`
}

// CloudAnnouncement is what a cloud announces to its nodes: in the response to a join, and in that to a poll in which
// the node describes itself.
type CloudAnnouncement struct {
	Key  string   `json:"key"`            // public key of the cloud, Ed25519 as base64url
	URLs []string `json:"urls,omitempty"` // of the controllers, in canonical form; the node also uses these
	CA   string   `json:"ca,omitempty"`   // PEM of authorities that nodes trust in addition
	// Signature is that of the line "buildyard cloud announcement 1" and of the JSON text of urls and ca.
	Signature string `json:"signature"`
}
