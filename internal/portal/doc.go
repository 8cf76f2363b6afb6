// Package portal serves the pages on which an operator sees and changes a build cloud.
//
// It is not another interface to the cloud: whatever a page shows or does goes through the
// controller's API, in this process, with the credentials of the user who views it. So display,
// refusal and audit are decided as for every other client. Pages are rendered on the server and can
// be read without scripts; scripts keep them live.
//
// Invariant: a page holds no untrusted text that a browser could take for markup or for a script,
// and nothing of it comes from another address than the portal's.
package portal
