declare namespace Slack {
  interface SlackListChannelsArgs {
    /** Maximum number of channels to return (default 100, max 200) (default: 100) */
    limit?: number;
    /** Pagination cursor for next page of results */
    cursor?: string;
  }
  interface SlackPostMessageArgs {
    /** The ID of the channel to post to */
    channel_id: string;
    /** The message text to post */
    text: string;
  }
  interface SlackReplyToThreadArgs {
    /** The ID of the channel containing the thread */
    channel_id: string;
    /** The timestamp of the parent message in the format '1234567890.123456'. Timestamps in the format without the period can be converted by adding the period such that 6 numbers come after it. */
    thread_ts: string;
    /** The reply text */
    text: string;
  }
  interface SlackAddReactionArgs {
    /** The ID of the channel containing the message */
    channel_id: string;
    /** The timestamp of the message to react to */
    timestamp: string;
    /** The name of the emoji reaction (without ::) */
    reaction: string;
  }
  interface SlackGetChannelHistoryArgs {
    /** The ID of the channel */
    channel_id: string;
    /** Number of messages to retrieve (default 10) (default: 10) */
    limit?: number;
  }
  interface SlackGetThreadRepliesArgs {
    /** The ID of the channel containing the thread */
    channel_id: string;
    /** The timestamp of the parent message in the format '1234567890.123456'. Timestamps in the format without the period can be converted by adding the period such that 6 numbers come after it. */
    thread_ts: string;
  }
  interface SlackGetUsersArgs {
    /** Pagination cursor for next page of results */
    cursor?: string;
    /** Maximum number of users to return (default 100, max 200) (default: 100) */
    limit?: number;
  }
  interface SlackGetUserProfileArgs {
    /** The ID of the user */
    user_id: string;
  }
}

declare const mcp: {
  readonly slack: {
    /** List public or pre-defined channels in the workspace with pagination */
    slack_list_channels(args?: Slack.SlackListChannelsArgs): Promise<unknown>;
    /** Post a new message to a Slack channel */
    slack_post_message(args: Slack.SlackPostMessageArgs): Promise<unknown>;
    /** Reply to a specific message thread in Slack */
    slack_reply_to_thread(args: Slack.SlackReplyToThreadArgs): Promise<unknown>;
    /** Add a reaction emoji to a message */
    slack_add_reaction(args: Slack.SlackAddReactionArgs): Promise<unknown>;
    /** Get recent messages from a channel */
    slack_get_channel_history(args: Slack.SlackGetChannelHistoryArgs): Promise<unknown>;
    /** Get all replies in a message thread */
    slack_get_thread_replies(args: Slack.SlackGetThreadRepliesArgs): Promise<unknown>;
    /** Get a list of all users in the workspace with their basic profile information */
    slack_get_users(args?: Slack.SlackGetUsersArgs): Promise<unknown>;
    /** Get detailed profile information for a specific user */
    slack_get_user_profile(args: Slack.SlackGetUserProfileArgs): Promise<unknown>;
  };
};
declare const slack: typeof mcp.slack;
