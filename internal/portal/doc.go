// Package portal serves the pages on which an operator sees and changes a build cloud.
//
// It is not another interface to the cloud: whatever a page shows or does goes through the
// controller's API, in this process, with the credentials of whoever looks at it. So what a page
// may show, what is refused and what is audited is decided where it is for every other client.
// Pages are made on the server and can be read without scripts; scripts keep them live.
//
// Invariant: a page holds no text of a stranger that a browser could take for markup or for a
// script, and nothing of it comes from another address than the portal's.
package portal
