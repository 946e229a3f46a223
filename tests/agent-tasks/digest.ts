// Compute the SHA-256 of a file and its base64.
// expect: ["4fdbc441ea7b","YWxwaGEKYmV0YQpnYW1tYQ=="]
const { content } = await files.readTextFile({ path: `${context.place}/a.txt` });
const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(content));
return [Buffer.from(digest).toString('hex').slice(0, 12), Buffer.from(content.trim()).toString('base64')];
